-- Stores the record of an idempotency key and releases its lock. `release` follows this piece.
-- KEYS: as for a release of one key, then the `counter` and the `record`, which are removed from the list.
-- ARGV: as for a release, then 4 the server's identity ('any' or '' if it does not matter), 5 the digest of the config,
-- 6 the ballot ('' if there is no record), 7 the body, 8 when it ends in milliseconds since 1970, 9 '' unless a quorum
-- has it, 10 '' unless replicas are waited for.
-- Replies {1, number of listeners} if the record is stored, {0} if it may not be; {-2, config} under another config,
-- and then nothing was changed. In all other cases the lock is not ours any more.
if refusal and refusal[1] == -2 then
  return refusal
end
local token, ballot, chosen = ARGV[1], ARGV[6], ARGV[9] ~= ''

-- Whether no lock was granted here with a higher number than the ballot. Where no grant is remembered, that the lock is
-- ours proves nothing by itself: an extension may have set it again after the grant of a later holder had ended.
local function unsurpassed(number)
  -- A missing counter may have come as far as the mark.
  local count = counted(redis.call('MGET', counter)[1]) or not known[4] and '0' or counted(known[4])
  return count and not less(number, count)
end

-- Stores the record if it may be stored; without a record, forgets the grant. Returns whether that was done.
local function store()
  -- A node that may have forgotten the last grant stores only what a quorum has: that is right whatever it forgot.
  if refusal and not chosen then
    return false
  end
  local before = redis.call('HMGET', record, 'last', 'ballot', 'until', 'promised')
  if before[2] and tonumber(before[3] or 0) <= now then
    before[2] = false
  end
  if ballot == '' then
    if before[1] == token and not before[2] then
      redis.call('DEL', record)
    end
    return true
  end
  if tonumber(ARGV[8]) <= now then
    -- Another caller may have found that it has ended.
    return false
  end
  local same = before[2] == ballot
  if before[2] and less(ballot, before[2]) then
    -- The writer of that record was told of ours, if a quorum had it. Its ttl is written again because WAIT covers only
    -- writes of this connection.
    local left = ARGV[10] ~= '' and redis.call('PTTL', record) or 0
    if left > 0 then
      redis.call('PEXPIRE', record, left)
    end
    return chosen
  end
  -- A later holder of the lock may have looked for a record and found none. And a grant from before the node's last
  -- promotion does not count: the data may be older than a later grant that was lost.
  local floor = known[5]
  local granted = (before[1] or unsurpassed(ballot) and redis.pcall('GET', KEYS[3])) == token
    and not (floor and not less(floor, ballot))
  -- The grant promised that nothing is stored under a lower ballot than its number. An earlier owner may have a ballot
  -- between the two, and the owner of this grant one that other nodes agreed on.
  granted = granted and not (before[4] and less(ballot, before[4]))
  if not (same or granted or chosen) then
    return false
  end
  -- Written also if it is the same, for the replicas.
  redis.call('HSET', record, 'ballot', ballot, 'body', ARGV[7], 'until', ARGV[8])
  -- The key may already live longer, because of `last`.
  if redis.call('PTTL', record) < ARGV[8] - now then
    redis.call('PEXPIREAT', record, ARGV[8])
  end
  return true
end

-- A failure with the record must not prevent the release of the lock.
local done, kept = pcall(store)

