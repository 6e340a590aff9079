-- Puts an owner in the place of another one, for the rest of its ttl, and leaves a tombstone of that.
-- KEYS: the lock, then the tombstone of the present owner, if it can have one; of readers, the key that says that the lock
-- was taken from them.
-- ARGV: 1 the present owner token, 2 the hash that it must have, 3 the next owner token, 4 how long the tombstone lives, and
-- a lock that had no end, in milliseconds, 5 how much longer than the rest the next owner has the key.
-- Replies the rest in milliseconds; -1 if the lock is not that owner's.
-- A key of another type looks absent. Readers stand behind a blank.
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
