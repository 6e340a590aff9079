-- Looks whether the server has thrown keys away since this was last asked. Then it may have forgotten locks, and the
-- marker says so to all: it does not vote before a quarantine.
-- KEYS: the marker.
-- Answers 1 if it has, else 0.
local now = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)') or '0'
if now == (redis.call('HMGET', KEYS[1], 'evicted')[1] or '0') then
  return 0
end
if now == '0' then
  -- The statistics were reset.
  redis.call('HDEL', KEYS[1], 'evicted')
  return 0
end
-- This one first: it needs no memory, and after it no write is refused for want of that.
redis.call('HDEL', KEYS[1], 'identity')
redis.call('HSET', KEYS[1], 'evicted', now)
return 1
