-- Reads the node's vote and its highest fencing token from the marker into `known`. If the vote is not the wanted one,
-- the script may end here with a refusal.
local known = redis.call('HMGET', KEYS[1], 'vote', 'hwm')
if known[1] ~= ARGV[3] then
  -- use identity
  -- use refused
  local refusal = refused(known[1], ARGV[3])
  if refusal then
    return refusal
  end
end
