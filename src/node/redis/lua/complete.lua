-- Keeps what the request of an idempotency key came to, and gives its lock back. `release` stands behind it.
-- KEYS: as for a release of one key, then the `marker` and the `record`, which are taken off.
-- ARGV: as for a release, then 4 who the server is ('any' or '' if it need not be known), 5 the digest of the config, 6
-- the ballot ('' if there is nothing to keep), 7 the body, 8 when it ends in milliseconds since 1970, 9 '' unless a quorum
-- has it, 10 '' unless replicas are waited for.
-- Answers {1, how many were told} if it is as it should be, {0} if the record may not be kept; {-2, config} under
-- another config, and then nothing was done. Else the lock is not ours any more.
if refusal and refusal[1] == -2 then
  return refusal
end
local token, ballot, chosen = ARGV[1], ARGV[6], ARGV[9] ~= ''

-- Keeps the record if it may be kept, or forgets the grant if there is none. Whether it is as it should be then.
local function settle()
  -- A node that may have forgotten whom it granted the lock keeps nothing but what a quorum has: that is right whoever
  -- it was.
  if refusal and not chosen then
    return false
  end
  local before = redis.call('HMGET', record, 'last', 'ballot', 'until')
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
    -- Others may have looked for it and found that it has ended.
    return false
  end
  local same = before[2] == ballot
  if before[2] and less(ballot, before[2]) then
    -- Whoever wrote that was told of ours, if a quorum had it. Written as it is, as replicas are waited for only with
    -- what this connection wrote.
    local left = ARGV[10] ~= '' and redis.call('PTTL', record) or 0
    if left > 0 then
      redis.call('PEXPIRE', record, left)
    end
    return chosen
  end
  -- Whoever was granted the lock since may have looked for a record and found none.
  -- Whom it granted it before its last promotion, it may remember by data that is older than who came since.
  local floor = known[5]
  local granted = (before[1] or redis.pcall('GET', KEYS[2])) == token and not (floor and not less(floor, ballot))
  if not (same or granted or chosen) then
    return false
  end
  -- Written also if it is the same, for the replicas.
  redis.call('HSET', record, 'ballot', ballot, 'body', ARGV[7], 'until', ARGV[8])
  -- For the sake of `last` it may be there for longer.
  if redis.call('PTTL', record) < ARGV[8] - now then
    redis.call('PEXPIREAT', record, ARGV[8])
  end
  return true
end

-- Whatever goes wrong with the record must not keep the lock from being given back.
local done, kept = pcall(settle)

