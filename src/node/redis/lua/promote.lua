-- Ends a quarantine, if it is still the one that is meant.
-- KEYS: the marker. ARGV: 1 who the server is, 2 the digest of the charter, 3 the name of the quarantine, 4 the least
-- that the highest number becomes ('' for nothing), 5 the least that the longest lease becomes in milliseconds.
-- Answers 1 if it was ended, else 0.
local me = told
local known = redis.call('HMGET', KEYS[1], 'digest', 'quarantine', 'hwm', 'max_lease')
if known[1] ~= ARGV[2] or known[2] ~= ARGV[3] or not is_told(string.match(ARGV[3], '^(.*):')) then
  return 0
end
if ARGV[4] ~= '' and (not known[3] or less(known[3], ARGV[4])) then
  redis.call('HSET', KEYS[1], 'hwm', ARGV[4])
end
if tonumber(known[4] or 0) < tonumber(ARGV[5]) then
  redis.call('HSET', KEYS[1], 'max_lease', ARGV[5])
end
redis.call('HSET', KEYS[1], 'identity', me, 'accepted', 1)
redis.call('HDEL', KEYS[1], 'quarantine', 'earlier')
return 1
