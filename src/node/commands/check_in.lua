-- Reports whether the node may vote, and begins its quarantine if it may have lost data.
-- KEYS: the marker.
-- ARGV: 1 the server's identity ('any' if lost data does not matter), 2 the digest of the config, 3 its text, 4 how
-- long its quarantines last in milliseconds, 5 a random name, 6 '', or 'look' to change nothing, or, to replace another
-- config, how long that config's quarantines lasted at least, 7 the format.
-- Replies:
-- {1, highest fencing token or ''} if it may vote;
-- {2, name of the quarantine, how long quarantines lasted under a replaced config or 0, whether it has voted under this
-- config (1 or 0)} if not;
-- {-2, config, its digest} if it has another config.
-- use identity
-- use is_told
local me = identity(ARGV[1])
local known = redis.call(
  'HMGET', KEYS[1], 'identity', 'digest', 'hwm', 'quarantine', 'config', 'format', 'length', 'former', 'accepted', 'vote'
)
local agreed = known[2] == ARGV[2]
local looks = ARGV[6] == 'look'
if (known[2] or known[6]) and not agreed and (looks or ARGV[6] == '') then
  return {-2, known[5] or 'format ' .. (known[6] or 'unknown'), known[2] or ''}
end
local former = math.max(tonumber(known[8]) or 0, tonumber(ARGV[6]) or 0, not agreed and tonumber(known[7]) or 0)
if looks then
  if me == 'any' or agreed and is_told(known[1], me) then
    return {1, known[3] or ''}
  end
  return {2, known[4] or '', former, agreed and known[9] and 1 or 0}
end
if not agreed then
  redis.call('HSET', KEYS[1], 'format', ARGV[7], 'digest', ARGV[2], 'config', ARGV[3], 'length', ARGV[4])
  redis.call('HDEL', KEYS[1], 'identity', 'accepted', 'vote')
end
if me == 'any' or agreed and is_told(known[1], me) then
  -- Acquires compare this field. If the server has no memory for it, it refuses acquires as well.
  local vote = ARGV[2] .. ' ' .. me
  if known[10] ~= vote then
    redis.pcall('HSET', KEYS[1], 'vote', vote)
  end
  return {1, known[3] or ''}
end
if former > 0 then
  redis.call('HSET', KEYS[1], 'former', former)
end
-- The name contains the identity and the config. A quarantine with another one is over.
local quarantine = known[4]
local whose, list = string.match(quarantine or '', '^(.*):([^:]*):[^:]*$')
if list ~= ARGV[2] or not is_told(whose, me) then
  quarantine = me .. ':' .. ARGV[2] .. ':' .. ARGV[5]
  redis.call('HSET', KEYS[1], 'quarantine', quarantine)
  redis.call('HDEL', KEYS[1], 'identity', 'vote')
end
return {2, quarantine, former, agreed and known[9] and 1 or 0}
