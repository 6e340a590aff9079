-- Puts an owner in the place of another one, for the rest of its ttl.
-- KEYS: the lock. ARGV: 1 the hash of the present owner token, 2 the next owner token, 3 how long a lock that had no end
-- lives in milliseconds, 4 how much longer than the rest the next owner has the key.
-- Replies {the rest in milliseconds, what the name of the former owner's tombstone ends with, or '' if it can have none};
-- -1 if the lock is not that owner's.
-- A key of another type looks absent.
local value = redis.call('MGET', KEYS[1])[1]
if not value or redis.sha1hex(value) ~= ARGV[1] then
  return -1
end
local digits = string.sub(value, 1, 40)
local rest = redis.call('PTTL', KEYS[1])
rest = rest < 0 and tonumber(ARGV[3]) or rest
redis.call('SET', KEYS[1], ARGV[2], 'PX', rest + ARGV[4])
return {rest, string.find(digits, '^%x+$') and #digits == 40 and digits or ''}
