-- Ends the named quarantine.
-- KEYS: the marker.
-- ARGV: 1 the server's identity, 2 the digest of the config, 3 the name of the quarantine, 4 the floor or ''.
-- Replies 1 if the node was in that quarantine and 0 if not, or an error if the floor is not a usable fencing token.
-- use identity
-- use is_told
-- use counted
local me, floor = identity(ARGV[1]), ARGV[4]
if floor ~= '' and not counted(floor) then
  return redis.error_reply('NOMARK nothing can be counted on from this floor')
end
local known = redis.call('HMGET', KEYS[1], 'digest', 'quarantine', 'hwm', 'floor')
if known[1] ~= ARGV[2] or known[2] ~= ARGV[3] or not is_told(string.match(ARGV[3], '^(.*):[^:]*:[^:]*$'), me) then
  return 0
end
-- Raises a field of the marker to the floor. Removes a field without a usable number, because the other nodes know it.
local function raise(field, before)
  before = before and counted(before)
  if floor ~= '' and (not before or before < floor) then
    redis.call('HSET', KEYS[1], field, floor)
  elseif not before then
    redis.call('HDEL', KEYS[1], field)
  end
end
raise('hwm', known[3])
-- Restored data can hold old counters, which count as the floor from now on.
raise('floor', known[4])
redis.call('HSET', KEYS[1], 'identity', me, 'accepted', 1, 'vote', ARGV[2] .. ' ' .. me)
redis.call('HDEL', KEYS[1], 'quarantine', 'former')
return 1
