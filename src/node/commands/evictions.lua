-- Tells whether the server has evicted keys since the last time. Then it may have lost locks, and the marker loses the
-- server's identity: it does not vote before a quarantine.
-- KEYS: the marker.
-- Replies 1 if it has, else 0.
local count = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)') or '0'
if count == '0' then
  -- Nothing was evicted since the start, or since the statistics were reset.
  redis.call('HDEL', KEYS[1], 'evicted')
  return 0
end
-- With the process: the count of another one, be it the one before a restart or the former master, says nothing.
local now = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') .. ':' .. count
if now == redis.call('HMGET', KEYS[1], 'evicted')[1] then
  return 0
end
-- This first: it needs no memory, and after it no write is refused for lack of memory.
redis.call('HDEL', KEYS[1], 'identity', 'vote')
redis.call('HSET', KEYS[1], 'evicted', now)
return 1
