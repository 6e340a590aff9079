-- Takes a lock: all of its keys or none.
-- KEYS: the marker, the owner's tombstone, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the ttl in milliseconds, 3 who the server is ('' if it need not be known), 4 the digest of
-- the charter, 5 the proposed number ('' for none), 6 the proposal less one step, 7 the proposal's second,
-- 8 how long counters live in milliseconds, 9 one step.
-- Answers {1, number or ''} if the lock is ours now; {0, remaining milliseconds, tag of the holder} if a key is held;
-- {-1} in quarantine, {-2, charter} under another charter, {-3} if our leases are longer than it knows of; {-4} if the
-- owner is gone. All is decided before the first write, and the owner is written last.
local token, ttl, proposal, lowered = ARGV[1], ARGV[2], ARGV[5], ARGV[6]
local known, refusal = standing(KEYS[1], ARGV[3], ARGV[4])
if refusal then
  return refusal
end
if ARGV[3] ~= '' and tonumber(ttl) > tonumber(known[3] or 0) then
  return {-3}
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  return {-4}
end
for i = 3, #KEYS, 2 do
  local holder = redis.call('GET', KEYS[i])
  if holder and holder ~= token then
    -- The holder's token is its secret: only a hash of it leaves the server.
    return {0, redis.call('PTTL', KEYS[i]), redis.sha1hex(holder)}
  end
end

local number = ''
if proposal ~= '' then
  -- A clock that is far ahead must not use up the numbers.
  local absurd = tonumber(ARGV[7]) > tonumber(redis.call('TIME')[1]) + 3600
  local base = known[4] or '0'
  local found = 0
  local highest = '0'
  for i = 4, #KEYS, 2 do
    local count = redis.call('GET', KEYS[i])
    if count then
      found = found + 1
      if less(highest, count) then
        highest = count
      end
    end
  end
  -- The mark stands in for counters that are missing.
  if 2 * found == #KEYS - 2 or less(base, highest) then
    base = highest
  end
  if absurd or less(lowered, base) then
    redis.call('SET', KEYS[4], base)
    redis.call('INCRBY', KEYS[4], ARGV[9])
    number = redis.call('GET', KEYS[4])
  else
    number = proposal
  end
  for i = 4, #KEYS, 2 do
    redis.call('SET', KEYS[i], number, 'PX', ARGV[8])
  end
  raise_mark(KEYS[1], known[4], number)
end
for i = 3, #KEYS, 2 do
  redis.call('SET', KEYS[i], token, 'PX', ttl)
end
return {1, number}
