-- Replaces the owner of a lock for the rest of its ttl, and leaves a tombstone of the former owner.
-- KEYS: the lock, then the tombstone of the present owner, if it can have one. For readers, this is the key that exists
-- if the lock was taken from all of them.
-- ARGV: 1 the present owner token, 2 its hash, 3 the new owner token, 4 how long the tombstone lives in milliseconds,
-- which is also the ttl of a lock without an expiry, 5 milliseconds to add to the ttl.
-- Replies the rest in milliseconds, or -1 if the lock has another owner.
-- Use MGET because a key of another type looks absent to it. In the value of readers, the owner is followed by a blank.
local value = redis.call('MGET', KEYS[1])[1]
if not value or string.match(value, '^%S*') ~= ARGV[1] or redis.sha1hex(ARGV[1]) ~= ARGV[2] then
  return -1
end
if KEYS[2] then
  redis.call('SET', KEYS[2], '', 'PX', ARGV[4])
end
local rest = redis.call('PTTL', KEYS[1])
rest = rest < 0 and tonumber(ARGV[4]) or rest
redis.call('SET', KEYS[1], ARGV[3], 'PX', rest + ARGV[5])
return rest
