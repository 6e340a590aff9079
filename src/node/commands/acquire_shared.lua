-- Acquires a lock for a reader, unless another kind of owner has it or a writer waits for it.
-- KEYS: as for an acquire of one key, then the key that waiting writers set.
-- ARGV: as for an acquire, then 7 the head of the readers' value (see `readers`).
-- Replies like an acquire. A waiting writer does not stop a reader that has the lock already.
-- use admit
-- use readers
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('MGET', unpack(KEYS, 2))
if found[1] then
  return {-4}
end
local others, last, is_ours = readers(found[2] or ARGV[7], ARGV[7], ARGV[1], now)
if not others then
  return {0, redis.call('PTTL', KEYS[3]), redis.sha1hex(string.match(found[2], '^%S*')), 0}
elseif found[4] and not is_ours then
  return {0, redis.call('PTTL', KEYS[5]), redis.sha1hex(string.match(found[4], '^%S*')), 0}
end
-- use number
local ends = now + ARGV[2]
local value = ARGV[7] .. others .. ' ' .. ARGV[1] .. ' ' .. string.format('%.0f', ends)
local ttl = string.format('%.0f', math.max(last, ends) - now)
-- This must be the first write, because a server without memory refuses only that one.
local done = redis.pcall('SET', KEYS[3], value, found[2] and 'XX' or 'NX', 'PX', ttl)
if not done or done.err then
  return done or redis.error_reply('WRONGTYPE the key holds no lock')
end
if number ~= '' then
  redis.call('SET', KEYS[4], number, 'PX', ARGV[6])
  if mark < number then
    redis.call('HSET', KEYS[1], 'hwm', number)
  end
end
return number == ARGV[4] and 1 or {1, number}
