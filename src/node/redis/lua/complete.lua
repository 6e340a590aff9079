-- Stores the record of an idempotency key and releases its lock. `release` follows this piece.
-- KEYS: as for a release of one key, then the `counter` and the `record`, which are removed from the list.
-- ARGV: as for a release, then 4 the digest of the config and the server's identity as for an acquire, 5 the ballot (''
-- if there is no record), 6 the body, 7 when it ends in milliseconds since 1970, 8 '' unless a quorum has it, 9 ''
-- unless replicas are waited for.
-- Replies {1, number of listeners} if the record is stored, {0} if it may not be; {-2, config} under another config,
-- and then nothing was changed. In all other cases the lock is not ours any more.
if refusal and refusal[1] == -2 then
  return refusal
end
local token, ballot, chosen = ARGV[1], ARGV[5], ARGV[8] ~= ''

-- Whether no lock was granted here with a higher number than the ballot. Where no grant is remembered, that the lock is
-- ours proves nothing by itself: an extension may have set it again after the grant of a later holder had ended.
local function unsurpassed(number)
  -- A missing counter may have come as far as the mark.
  local count = counted(redis.call('MGET', counter)[1]) or not known[3] and '0' or counted(known[3])
  return count and not less(number, count)
end

-- Stores the record if it may be stored; without a record, forgets the grant. Returns whether that was done.
local function store()
  -- A node that may have forgotten the last grant stores only what a quorum has: that is right whatever it forgot.
  if refusal and not chosen then
    return false
  end
  if unreadable then
    error(unreadable)
  end
  local before = alive and known_ballot
  if ballot == '' then
    if last == token and not before then
      redis.call('DEL', record)
    end
    return true
  end
  if tonumber(ARGV[7]) <= now then
    -- Another caller may have found that it has ended.
    return false
  end
  local same = before == ballot
  if before and less(ballot, before) then
    -- The writer of that record was told of ours, if a quorum had it. Its ttl is written again because WAIT covers only
    -- writes of this connection.
    if ARGV[9] ~= '' then
      redis.call('PEXPIRE', record, string.format('%.0f', till - now))
    end
    return chosen
  end
  -- A later holder of the lock may have looked for a record and found none. And a grant from before the node's last
  -- promotion does not count: the data may be older than a later grant that was lost.
  local floor, remembered = known[4], last and last ~= '' and last
  local granted = (remembered or unsurpassed(ballot) and redis.pcall('GET', KEYS[3])) == token
    and not (floor and not less(floor, ballot))
  -- The grant promised that nothing is stored under a lower ballot than its number. An earlier owner may have a ballot
  -- between the two, and the owner of this grant one that other nodes agreed on.
  granted = granted and not (promised and promised ~= '' and less(ballot, promised))
  if not (same or granted or chosen) then
    return false
  end
  -- Written also if it is the same, for the replicas.
  local head = (last or '') .. ' ' .. (promised or '') .. ' ' .. (stays or '0') .. ' '
  till = string.format('%.0f', math.max(stays or 0, ARGV[7] - 1))
  redis.call('SET', record, head .. ballot .. ' ' .. ARGV[7] .. ' ' .. ARGV[6], 'PXAT', till)
  return true
end

-- A failure with the record must not prevent the release of the lock.
done, kept = pcall(store)
