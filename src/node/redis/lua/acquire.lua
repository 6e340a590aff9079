-- Acquires a lock, all of its keys or none, in the general case.
-- KEYS and ARGV as `quick` has them, for one key or several. Replies as there; {-1} in quarantine, {-2, config, its
-- digest} under another config; {-4} if the owner has a tombstone;
-- an error that begins with NOMARK if the marker has no usable fencing token. All decisions come before the first write,
-- and the owner token is written last: unused fencing tokens do no harm.
local token, ttl, proposal = ARGV[1], ARGV[2], ARGV[4]
-- The tombstone, then each lock and its counter.
local names = {string.match(KEYS[3], '^(.-)!fence:') .. '!dead:' .. token}
for i = 2, #KEYS do
  names[i] = KEYS[i]
end
local found = redis.call('MGET', unpack(names))
if found[1] then
  return {-4}
end
for i = 2, #KEYS, 2 do
  local holder = found[i]
  if holder and holder ~= token then
    -- The holder's token is its secret: only a hash of it leaves the server.
    return {0, redis.call('PTTL', KEYS[i]), redis.sha1hex(holder), i / 2 - 1}
  end
end

local number = ''
if proposal ~= '' then
  if unmarked then
    return redis.error_reply(unmarked)
  end
  -- A clock that is far ahead must not use up the fencing tokens: an hour ahead of the mark and of this server's clock.
  -- Both as fractions, which are exact enough for that.
  local absurd = not counted(proposal)
    or proposal - mark > 3686400000000 and proposal / 1024000000 > redis.call('TIME')[1] + 3600
  local base = floor or '0'
  for i = 3, #KEYS, 2 do
    -- A counter that holds no number counts as missing and is overwritten.
    local count = counted(found[i]) or mark
    if less(base, count) then
      base = count
    end
  end
  if absurd or less(ARGV[5], base) then
    -- In two parts: Lua's numbers cannot hold all digits.
    local high, low = tonumber(string.sub(base, 1, -16)) or 0, tonumber(string.sub(base, -15)) + 1024
    if low >= 1e15 then
      high, low = high + 1, low - 1e15
    end
    number = high > 0 and string.format('%.0f%015.0f', high, low) or string.format('%.0f', low)
  else
    number = proposal
  end
  for i = 3, #KEYS, 2 do
    redis.call('SET', KEYS[i], number, 'PX', ARGV[6])
  end
  if less(mark, number) then
    redis.call('HSET', marker, 'hwm', number)
  end
end
for i = 2, #KEYS, 2 do
  -- A key of another type looked absent above.
  if not found[i] and not redis.call('SET', KEYS[i], token, 'NX', 'PX', ttl) then
    for j = 2, i - 2, 2 do
      if not found[j] then
        redis.call('DEL', KEYS[j])
      end
    end
    return redis.error_reply('WRONGTYPE the key holds no lock')
  end
  if found[i] then
    redis.call('PEXPIRE', KEYS[i], ttl)
  end
end
