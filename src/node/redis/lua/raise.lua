-- Writes the fencing token of a lock back, if the lock is still ours.
-- KEYS: the marker, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the fencing token, 3 how long counters live in milliseconds, 4 the server's identity ('any'
-- or '' if it does not matter), 5 the digest of the config.
-- Replies 1 if no counter is below the fencing token any more, 0 if a key is not ours; {-1} in quarantine, where the lock
-- may be one that was lost and came back, {-2, config, its digest} under another config, an error as for an acquire.
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
  -- MGET reports a key of another type as absent.
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
