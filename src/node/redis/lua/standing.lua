-- What the `marker` knows: who the node was, under which config, for leases of what length, up to which number, and
-- from which on since it was promoted. And, if the node may not vote for who is `told` ('any' if it does not matter what
-- it has forgotten) and under the config of this `digest`, the answer that says so.
local known = redis.call('HMGET', marker, 'identity', 'digest', 'max_lease', 'hwm', 'floor')
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
-- For how long what is set here at most counts, in milliseconds.
local longest = (told == '' or told == 'any') and math.huge or tonumber(known[3] or 0)
