-- Takes a lock.
-- KEYS[1] the lock; ARGV[1] the owner token; ARGV[2] the ttl in milliseconds.
-- Answers {1} if the lock is ours now, else {0, remaining milliseconds, tag of the holder}.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return {1}
end
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  -- A repeated attempt with the same token: the same grant, for a full ttl.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1}
end
-- The holder's token is its secret: only a hash of it leaves the server.
return {0, redis.call('PTTL', KEYS[1]), redis.sha1hex(holder)}
