-- Stores the record of an idempotency key and releases its lock, even if the record cannot be stored.
-- KEYS: the marker, the lock, its counter, the record (see `recall.lua`), then the owner's tombstone, if one is needed.
-- ARGV: 1 the owner token, 2 how long the tombstone lives in milliseconds or '', 3 the channel of the lock's releases
-- ('' for no notice), 4 the wanted vote (see `refused`), 5 the ballot ('' without a record), 6 the body, 7 its end in
-- milliseconds since 1970, 8 '' unless a quorum has the record, 9 '' unless the client waits for replicas.
-- Replies the number of listeners if the record is stored, and -1 if it is refused. If the node has another config,
-- replies {-2, config, its digest} and changes nothing. In all other cases, the lock is not ours any more.
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
-- The rules from here on are those of `keep_record` in `records.rs`, which has the reasons.
local stored, owner = false, last
if owner == '' and ballot ~= '' then
  -- use counted
  local count = redis.call('MGET', KEYS[3])[1]
  count = count and counted(count) or counted(redis.call('HMGET', KEYS[1], 'hwm')[1])
  owner = count and ballot >= count and redis.call('MGET', KEYS[2])[1]
end
local granted = owner == token and not (known[2] and ballot <= known[2]) and ballot >= promised
-- A node that may have forgotten the last grant stores only what a quorum has.
if not (failed or refusal and not chosen or ballot ~= '' and ARGV[7] - now <= 0) then
  if ballot == '' then
    stored = true
    if last == token and before == '' then
      redis.call('DEL', KEYS[4])
    end
  elseif before ~= '' and ballot < before then
    -- Renew the ttl of the newer record, because WAIT covers only writes of this connection.
    stored = chosen
    if ARGV[9] ~= '' then
      redis.call('PEXPIRE', KEYS[4], string.format('%.0f', math.max(stays, ends - 1, now + 1) - now))
    end
  elseif before == ballot or granted or chosen then
    -- Write the same record again, so that WAIT covers it.
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
