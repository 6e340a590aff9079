-- Writes the fencing token of a lock back, if the owner still has the lock or is one of its readers.
-- KEYS: the marker, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the fencing token, 3 how long counters live in milliseconds, 4 the wanted vote (see
-- `refused`).
-- Replies 1 if no counter is below the fencing token now, 0 if the owner does not have a key, {-1} in quarantine,
-- because the lock may be from before the node lost data, {-2, config, its digest} if the node has another config, or
-- an error as for an acquire.
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
  -- Only values of readers contain blanks.
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
