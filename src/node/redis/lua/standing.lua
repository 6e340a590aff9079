-- Reads the `marker` into `known`: the identity, the config, the highest fencing token and the floor. Sets `refusal` to
-- the reply that says so if the node may not vote with the identity in `told` ('any' if lost data does not matter) and
-- under the config with this `digest`.
local known = redis.call('HMGET', marker, 'identity', 'digest', 'hwm', 'floor')
local refusal
if told ~= '' then
  if known[2] and known[2] ~= digest then
    refusal = {-2, redis.call('HMGET', marker, 'config')[1] or '', known[2]}
  elseif told == 'any' then
    refusal = nil
  elseif known[2] ~= digest or not known[1] then
    refusal = {-1}
  elseif known[1] ~= told and (string.find(told, '/', 1, true) or string.sub(known[1], 1, #told + 1) ~= told .. '/') then
    -- As `is_told` has it, without the cost of a function.
    refusal = {-1}
  end
end
