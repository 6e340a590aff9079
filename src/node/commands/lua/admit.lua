-- Reads what the node may vote for and its highest fencing token from the marker into `known`. Ends the script with the
-- reply that says so if the node may not vote for what the client wants.
local known = redis.call('HMGET', KEYS[1], 'vote', 'hwm')
if known[1] ~= ARGV[3] then
  -- use identity
  -- use refused
  local refusal = refused(known[1], ARGV[3])
  if refusal then
    return refusal
  end
end
