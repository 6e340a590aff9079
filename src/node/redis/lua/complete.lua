-- Keeps what the request of an idempotency key came to, and gives its lock back. `release` stands in front of it.
-- KEYS: as for a release of one key, then the marker and the record.
-- ARGV: as for a release, then 4 who the server is ('' if it need not be known), 5 the digest of the charter, 6 the
-- ballot ('' if there is nothing to keep), 7 the body, 8 how long it is kept in milliseconds, 9 '' unless a quorum has
-- it, 10 '' unless replicas are waited for.
-- Answers {1, how many were told} if it is as it should be, {0} if the record may not be kept; {-2, charter} under
-- another charter, and then nothing was done. Else the lock is not ours any more.
local record, marker = table.remove(KEYS), table.remove(KEYS)
local token, ballot, chosen = ARGV[1], ARGV[6], ARGV[9] ~= ''
local _, refusal = standing(marker, ARGV[4], ARGV[5])
if refusal and refusal[1] == -2 then
  return refusal
end

-- Keeps the record if it may be kept, or forgets the grant if there is none. Whether it is as it should be then.
local function settle()
  -- A node that may have forgotten whom it granted the lock keeps nothing but what a quorum has: that is right whoever
  -- it was.
  if refusal and not chosen then
    return false
  end
  local known = redis.call('HMGET', record, 'last', 'ballot')
  if ballot == '' then
    if known[1] == token and not known[2] then
      redis.call('DEL', record)
    end
    return true
  end
  local same = known[2] == ballot
  if known[2] and less(ballot, known[2]) then
    -- Whoever wrote that was told of ours, if a quorum had it.
    touch(record, ARGV[10])
    return chosen
  end
  -- Whoever was granted the lock since may have looked for a record and found none.
  local ours = (known[1] or redis.pcall('GET', KEYS[2])) == token
  if not (same or ours or chosen) then
    return false
  end
  -- Written also if it is the same: as with `touch`.
  redis.call('HSET', record, 'ballot', ballot, 'body', ARGV[7])
  if redis.call('PTTL', record) < tonumber(ARGV[8]) then
    redis.call('PEXPIRE', record, ARGV[8])
  end
  return true
end

-- Whatever goes wrong with the record must not keep the lock from being given back.
local problem
local done, kept = pcall(settle)
if not done then
  -- Older servers raise a text.
  problem = type(kept) == 'table' and kept or redis.error_reply(tostring(kept))
end
local reply = release()
if problem or reply.err then
  return problem or reply
end
if not kept then
  return {0}
end
return {1, reply[2] or 0}
