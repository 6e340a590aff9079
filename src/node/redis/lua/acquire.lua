-- Takes a lock: all of its keys or none.
-- KEYS: the marker, the owner's tombstone, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the ttl in milliseconds, 3 who the server is ('' if it need not be known), 4 the digest of
-- the charter, 5 the proposed number ('' for none), 6 the proposal less one step, 7 the proposal less an hour, 8 its
-- second, 9 how long counters live in milliseconds, 10 one step.
-- Answers {1, number or ''} if the lock is ours now; {0, remaining milliseconds, tag of the holder, place of the key
-- among ours} if a key is held;
-- {-1} in quarantine, {-2, charter} under another charter, {-3} if our leases are longer than it knows of; {-4} if the
-- owner is gone. All else is decided before the first write, and the owner is written last: numbers that were used for
-- nothing do no harm.
local token, ttl, proposal = ARGV[1], ARGV[2], ARGV[5]
if told ~= '' and tonumber(ttl) > tonumber(known[3] or 0) then
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
  local mark = known[4] or '0'
  -- A clock that is far ahead must not use up the numbers.
  local absurd = less(mark, ARGV[7]) and tonumber(ARGV[8]) > tonumber(redis.call('TIME')[1]) + 3600
  local base = '0'
  for i = 3, #found, 2 do
    -- The mark stands in for counters that are missing.
    local count = found[i] or mark
    if less(base, count) then
      base = count
    end
  end
  if absurd or less(ARGV[6], base) then
    redis.call('SET', KEYS[4], base)
    redis.call('INCRBY', KEYS[4], ARGV[10])
    number = redis.call('GET', KEYS[4])
  else
    number = proposal
  end
  for i = 4, #KEYS, 2 do
    redis.call('SET', KEYS[i], number, 'PX', ARGV[9])
  end
  if not known[4] or less(known[4], number) then
    redis.call('HSET', marker, 'hwm', number)
  end
end
for i = 3, #KEYS, 2 do
  -- What is no string looked absent.
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
