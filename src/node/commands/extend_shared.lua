-- Renews the share of a reader, if it still has the lock.
-- KEYS: the marker, the lock, its counter, the reader's tombstone, the key that exists if the lock was taken from all
-- readers.
-- ARGV: 1 the wanted vote (see `refused`), 2 the owner token of the reader, 3 the ttl in milliseconds, 4 '1' to set an
-- absent share again, 5 the fencing token or '', 6 how long counters live, 7 the head of the readers' value (see
-- `readers`).
-- Replies like an extend of one lock.
-- use counted
-- use readers
local known = redis.call('HMGET', KEYS[1], 'vote', 'hwm', 'floor')
-- use identity
-- use refused
local refusal = refused(known[1], ARGV[1])
if refusal and refusal[1] == -2 then
  return refusal
end
local votes = refusal and 0 or 1
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('MGET', unpack(KEYS, 2))
local others, last, is_ours = readers(found[1] or ARGV[7], ARGV[7], ARGV[2], now)
if not others then
  return {votes, {redis.call('PTTL', KEYS[2]), redis.sha1hex(string.match(found[1], '^%S*'))}}
elseif not is_ours and (ARGV[4] ~= '1' or found[3] or found[4]) then
  return {votes, 0}
end
local number, mark, trouble = ARGV[5], counted(known[3]) and counted(known[2]), nil
if number ~= '' and not mark then
  trouble = 'NOMARK the marker holds no numbers to count on from'
elseif number ~= '' then
  -- A late command must not lower the counter below the mark.
  local value = found[2] and counted(found[2]) or mark
  value = value < number and number or value
  local done = found[2] == value or redis.pcall('SET', KEYS[3], value, 'PX', ARGV[6])
  trouble = type(done) == 'table' and done.err
  if not trouble and mark < number then
    redis.pcall('HSET', KEYS[1], 'hwm', number)
  end
end
if trouble and not is_ours then
  return {votes, trouble}
end
local ends = now + ARGV[3]
local value = ARGV[7] .. others .. ' ' .. ARGV[2] .. ' ' .. string.format('%.0f', ends)
local ttl = string.format('%.0f', math.max(last, ends) - now)
-- Begin with PEXPIRE, because a server without memory refuses only the first write, and never this one.
if is_ours then
  redis.call('PEXPIRE', KEYS[2], ttl)
end
local done = redis.pcall('SET', KEYS[2], value, found[1] and 'XX' or 'NX', 'PX', ttl)
if not done or done.err then
  return {votes, done and done.err or 'WRONGTYPE the key holds no lock'}
end
return {votes, is_ours and 1 or 2}
