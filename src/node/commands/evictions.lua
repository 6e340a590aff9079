-- Checks whether the server has evicted keys since the last check. If it has, it may have lost locks. The script then
-- removes the server's identity from the marker, so that the node does not vote before a quarantine.
-- KEYS: the marker.
-- Replies 1 if keys were evicted and 0 if not.
local count = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)') or '0'
if count == '0' then
  -- Nothing was evicted since the start or since the statistics were reset.
  redis.call('HDEL', KEYS[1], 'evicted')
  return 0
end
-- Add the process, because the counts of two processes cannot be compared.
local now = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') .. ':' .. count
if now == redis.call('HMGET', KEYS[1], 'evicted')[1] then
  return 0
end
-- Do this first, because a server without memory does not refuse HDEL, nor any write that follows it.
redis.call('HDEL', KEYS[1], 'identity', 'vote')
redis.call('HSET', KEYS[1], 'evicted', now)
return 1
