-- Writes the number of a lock back, if it is still ours.
-- KEYS: the marker, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the number, 3 how long counters live in milliseconds.
-- Answers 1 if the counters are at least at the number, 0 if a key is not ours.
for i = 2, #KEYS, 2 do
  if redis.call('GET', KEYS[i]) ~= ARGV[1] then
    return 0
  end
end
for i = 3, #KEYS, 2 do
  local seen = redis.call('GET', KEYS[i])
  if not seen or less(seen, ARGV[2]) then
    redis.call('SET', KEYS[i], ARGV[2], 'PX', ARGV[3])
  end
end
local mark = redis.call('HGET', KEYS[1], 'hwm')
if not mark or less(mark, ARGV[2]) then
  redis.call('HSET', KEYS[1], 'hwm', ARGV[2])
end
return 1
