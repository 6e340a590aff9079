-- Tells whether the server has evicted keys since the last time. Then it may have lost locks, and the marker loses the
-- server's identity: it does not vote before a quarantine.
-- KEYS: the marker.
-- Replies 1 if it has, else 0.
local now = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)') or '0'
if now == (redis.call('HMGET', KEYS[1], 'evicted')[1] or '0') then
  return 0
end
if now == '0' then
  -- The statistics were reset.
  redis.call('HDEL', KEYS[1], 'evicted')
  return 0
end
-- This first: it needs no memory, and after it no write is refused for lack of memory.
redis.call('HDEL', KEYS[1], 'identity')
redis.call('HSET', KEYS[1], 'evicted', now)
return 1
