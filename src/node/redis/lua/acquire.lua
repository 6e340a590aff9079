-- Acquires a lock: all of its keys or none.
-- KEYS: the marker, the owner's tombstone, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the ttl in milliseconds, 3 the server's identity ('any' or '' if it does not matter), 4
-- the digest of the config, 5 the proposed fencing token ('' for none), 6 the proposal minus one step, 7 the proposal
-- minus an hour, 8 its second, 9 how long counters live in milliseconds, 10 one step.
-- Replies {1, fencing token or ''} if the lock is ours now; {0, remaining milliseconds, tag of the holder, index of the
-- key from 0} if a key is held; {-1} in quarantine, {-2, config, its digest} under another config, {-3} if our leases
-- are longer than the node knows of; {-4} if the owner has a tombstone; an error that begins with NOMARK if the marker
-- has no usable fencing token. All decisions come before the first write, and the owner token is written last: unused
-- fencing tokens do no harm.
local token, ttl, proposal = ARGV[1], ARGV[2], ARGV[5]
if tonumber(ttl) > longest then
  return {-3}
end
-- The tombstone, then each lock and its counter.
local found = redis.call('MGET', unpack(KEYS, 2))
if found[1] then
  return {-4}
end
for i = 2, #found, 2 do
  local holder = found[i]
  if holder and holder ~= token then
    -- The holder's token is its secret: only a hash of it leaves the server.
    return {0, redis.call('PTTL', KEYS[i + 1]), redis.sha1hex(holder), i / 2 - 1}
  end
end

local number = ''
if proposal ~= '' then
  if unmarked then
    return redis.error_reply(unmarked)
  end
  -- A clock that is far ahead must not use up the fencing tokens.
  local absurd = not counted(proposal)
    or less(mark, ARGV[7]) and tonumber(ARGV[8]) > tonumber(redis.call('TIME')[1]) + 3600
  local base = floor or '0'
  for i = 3, #found, 2 do
    -- A counter that holds no number counts as missing and is overwritten.
    local count = counted(found[i]) or mark
    if less(base, count) then
      base = count
    end
  end
  if absurd or less(ARGV[6], base) then
    -- In two parts: Lua's numbers cannot hold all digits.
    local high, low = tonumber(string.sub(base, 1, -16)) or 0, tonumber(string.sub(base, -15)) + tonumber(ARGV[10])
    if low >= 1e15 then
      high, low = high + 1, low - 1e15
    end
    number = high > 0 and string.format('%.0f%015.0f', high, low) or string.format('%.0f', low)
  else
    number = proposal
  end
  for i = 4, #KEYS, 2 do
    redis.call('SET', KEYS[i], number, 'PX', ARGV[9])
  end
  if less(mark, number) then
    redis.call('HSET', marker, 'hwm', number)
  end
end
for i = 3, #KEYS, 2 do
  -- A key of another type looked absent above.
  if not found[i - 1] and not redis.call('SET', KEYS[i], token, 'NX', 'PX', ttl) then
    for j = 3, i - 2, 2 do
      if not found[j - 1] then
        redis.call('DEL', KEYS[j])
      end
    end
    return redis.error_reply('WRONGTYPE the key holds no lock')
  end
  if found[i - 1] then
    redis.call('PEXPIRE', KEYS[i], ttl)
  end
end
