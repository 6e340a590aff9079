-- Writes the fencing token of a lock back, if the lock is still its owner's, or the owner is one of its readers.
-- KEYS: the marker, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the fencing token, 3 how long counters live in milliseconds, 4 what the node is to vote
-- for (see `refused`).
-- Replies 1 if no counter is below the fencing token any more, 0 if a key is not the owner's; {-1} in quarantine, where
-- the lock may be one that was lost and came back, {-2, config, its digest} under another config, an error as for an
-- acquire.
-- use identity
-- use refused
-- use counted
local known = redis.call('HMGET', KEYS[1], 'vote', 'hwm', 'floor')
local refusal = refused(known[1], ARGV[4])
if refusal then
  return refusal
end
local found = redis.call('MGET', unpack(KEYS, 2))
for i = 1, #found, 2 do
  -- Only readers stand in a value with blanks.
  if found[i] ~= ARGV[1] and not string.find(found[i] or '', ' ' .. ARGV[1] .. ' ', 1, true) then
    return 0
  end
end
local mark = counted(known[2])
if not mark or not counted(known[3]) then
  return redis.error_reply('NOMARK the marker holds no numbers to count on from')
end
for i = 2, #found, 2 do
  local count = found[i] and counted(found[i]) or mark
  count = count < ARGV[2] and ARGV[2] or count
  if found[i] ~= count then
    redis.call('SET', KEYS[i + 1], count, 'PX', ARGV[3])
  end
end
if mark < ARGV[2] then
  redis.call('HSET', KEYS[1], 'hwm', ARGV[2])
end
return 1
