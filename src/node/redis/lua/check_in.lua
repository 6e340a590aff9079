-- Asks whether the node may vote, and begins its quarantine if it may have forgotten something.
-- KEYS: the marker. ARGV: 1 who the server is, 2 the digest of the charter, 3 its text, 4 the longest lease in
-- milliseconds, 5 a random name, 6 '1' if the members are being changed.
-- Answers {1, longest lease, highest number or ''} if it may vote, {2, name of the quarantine, longest lease} if not,
-- {-2, charter} under another charter.
local me = told
local known = redis.call('HMGET', KEYS[1], 'identity', 'digest', 'max_lease', 'hwm', 'quarantine', 'charter')
local agreed = known[2] == ARGV[2]
if known[2] and not agreed and ARGV[6] ~= '1' then
  return {-2, known[6] or ''}
end
local lease = tonumber(known[3] or 0)
if lease < tonumber(ARGV[4]) then
  lease = tonumber(ARGV[4])
  redis.call('HSET', KEYS[1], 'max_lease', ARGV[4])
end
if agreed and is_told(known[1]) then
  return {1, lease, known[4] or ''}
end
local quarantine = known[5]
if not agreed or not quarantine or not is_told(string.match(quarantine, '^(.*):')) then
  quarantine = me .. ':' .. ARGV[5]
  redis.call('HSET', KEYS[1], 'quarantine', quarantine, 'digest', ARGV[2], 'charter', ARGV[3])
  redis.call('HDEL', KEYS[1], 'identity')
end
return {2, quarantine, lease}
