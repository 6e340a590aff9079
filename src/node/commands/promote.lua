-- Ends a quarantine, if the node is still in the one that is named.
-- KEYS: the marker. ARGV: 1 the server's identity, 2 the digest of the config, 3 the name of the quarantine, 4 the
-- floor ('' for none): the highest fencing token is raised to it, and from now on no counter counts for less.
-- Replies 1 if it was ended, else 0; an error if the floor is no usable fencing token.
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
-- Raises a field of the marker to the floor. A field without a usable number is removed: the other nodes know better.
local function raise(field, before)
  before = before and counted(before)
  if floor ~= '' and (not before or before < floor) then
    redis.call('HSET', KEYS[1], field, floor)
  elseif not before then
    redis.call('HDEL', KEYS[1], field)
  end
end
raise('hwm', known[3])
-- Restored data may hold old counters: from now on none of them counts for less.
raise('floor', known[4])
redis.call('HSET', KEYS[1], 'identity', me, 'accepted', 1, 'vote', ARGV[2] .. ' ' .. me)
redis.call('HDEL', KEYS[1], 'quarantine', 'former')
return 1
