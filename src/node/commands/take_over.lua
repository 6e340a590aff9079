-- Puts an owner in the place of another one, for the rest of its ttl. From then on the commands of that one are void.
-- KEYS: the lock. ARGV: 1 the hash of the present owner token, 2 the next owner token, 3 how the names of tombstones
-- begin, 4 how long a tombstone lives in milliseconds, and a lock that had no end, 5 how much longer than the rest the
-- next owner has the key.
-- Replies the rest in milliseconds; -1 if the lock is not that owner's.
-- A key of another type looks absent.
local value = redis.call('MGET', KEYS[1])[1]
if not value or redis.sha1hex(value) ~= ARGV[1] then
  return -1
end
local digits = string.sub(value, 1, 40)
if string.find(digits, '^%x+$') and #digits == 40 then
  redis.pcall('SET', ARGV[3] .. digits, '', 'PX', ARGV[4])
end
local rest = redis.call('PTTL', KEYS[1])
rest = rest < 0 and tonumber(ARGV[4]) or rest
redis.call('SET', KEYS[1], ARGV[2], 'PX', rest + ARGV[5])
return rest
