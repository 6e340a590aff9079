-- Stores the record of an idempotency key and releases its lock. A failure with the record does not prevent that.
-- KEYS: the marker, the lock, its counter, the record as for a recall, then the owner's tombstone, if one is to be left.
-- ARGV: 1 the owner token, 2 how long the tombstone lives in milliseconds ('' for none), 3 the channel of the lock's
-- releases, or '' for no notice, 4 what the node is to vote for (see `refused`), 5 the ballot ('' if there is no
-- record), 6 the body, 7 when it ends in milliseconds since 1970, 8 '' unless a quorum has it, 9 '' unless replicas are
-- waited for.
-- Replies the number of listeners if the record is stored, -1 if it may not be; {-2, config, its digest} under another
-- config, and then nothing was changed. In all other cases the lock is not ours any more.
local token, ballot, chosen = ARGV[1], ARGV[5], ARGV[8] ~= ''
local known = redis.call('HMGET', KEYS[1], 'vote', 'floor')
local refusal
if known[1] ~= ARGV[4] then
  -- use identity
  -- use refused
  refusal = refused(known[1], ARGV[4])
  if refusal and refusal[1] == -2 then
    return refusal
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- use record
local failed, last, promised, stays, before, ends = record(KEYS[4], now)
local stored, owner = false, last
if owner == '' and ballot ~= '' then
  -- Where no grant is remembered, that the lock is ours proves nothing by itself: an extension may have set it again after
  -- the grant of a later holder had ended. A missing counter may have come as far as the mark.
  -- use counted
  local count = redis.call('MGET', KEYS[3])[1]
  count = count and counted(count) or counted(redis.call('HMGET', KEYS[1], 'hwm')[1])
  owner = count and ballot >= count and redis.call('MGET', KEYS[2])[1]
end
-- A grant from before the node's last promotion does not count: the data may be older than a later grant that was lost.
-- The grant promised that nothing is stored under a lower ballot than its number. An earlier owner may have a ballot
-- between the two, and the owner of this grant one that other nodes agreed on.
local granted = owner == token and not (known[2] and ballot <= known[2]) and ballot >= promised
-- A node that may have forgotten the last grant stores only what a quorum has: that is right whatever it forgot. And
-- another caller may have found that the record has ended.
if not (failed or refusal and not chosen or ballot ~= '' and ARGV[7] - now <= 0) then
  if ballot == '' then
    stored = true
    if last == token and before == '' then
      redis.call('DEL', KEYS[4])
    end
  elseif before ~= '' and ballot < before then
    -- The writer of that record was told of ours, if a quorum had it. Its ttl is written again because WAIT covers only
    -- writes of this connection.
    stored = chosen
    if ARGV[9] ~= '' then
      redis.call('PEXPIRE', KEYS[4], string.format('%.0f', math.max(stays, ends - 1, now + 1) - now))
    end
  elseif before == ballot or granted or chosen then
    -- Written also if it is the same, for the replicas.
    local head = last .. ' ' .. promised .. ' ' .. stays .. ' ' .. ballot .. ' ' .. ARGV[7] .. ' '
    local till = string.format('%.0f', math.max(stays, ARGV[7] - 1))
    local done = redis.pcall('SET', KEYS[4], head .. ARGV[6], 'PXAT', till)
    failed, stored = done.err and done, true
  end
end
if ARGV[2] ~= '' then
  redis.pcall('SET', KEYS[5], '', 'PX', ARGV[2])
end
local key, channel, waited = KEYS[2], ARGV[3], ''
owner = token
-- use let_go
return failed or stored and math.max(told, 0) or -1
