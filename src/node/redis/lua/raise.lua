-- Writes the number of a lock back, if it is still ours.
-- KEYS: the marker, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the number, 3 how long counters live in milliseconds.
-- Answers 1 if the counters are at least at the number, 0 if a key is not ours, an error as an acquire.
for i = 2, #KEYS, 2 do
  if redis.call('GET', KEYS[i]) ~= ARGV[1] then
    return 0
  end
end
if unmarked then
  return redis.error_reply(unmarked)
end
local counts = {}
for i = 3, #KEYS, 2 do
  -- Asked for many, a server takes what is no string for absent.
  local count = counted(redis.call('MGET', KEYS[i])[1]) or mark
  counts[i] = less(count, ARGV[2]) and ARGV[2] or count
end
for i = 3, #KEYS, 2 do
  redis.call('SET', KEYS[i], counts[i], 'PX', ARGV[3])
end
if less(mark, ARGV[2]) then
  redis.call('HSET', marker, 'hwm', ARGV[2])
end
return 1
