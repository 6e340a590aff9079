-- Acquires the lock of an idempotency key, or returns its record.
-- KEYS: as for an acquire of one key, then the record.
-- ARGV: as for an acquire, then 7 '' unless the lock is wanted even if there is a record, 8 how long the grant is
-- remembered at least, in milliseconds, 9 '' unless the client waits for replicas, 10 '' unless the node is too full
-- for another record.
-- Replies {3, fencing token, now} if the lock is ours, with the record if there is one; the record alone, as 'ballot
-- end body', if there is one and the lock was not acquired; {-5} if the node is too full; otherwise like an acquire.
-- The value of a record has these parts, with a blank after each but the last: the last owner that was granted the lock
-- ('' for none), its fencing token, until when they are remembered in milliseconds since 1970, and if there is a record
-- its ballot, its end and its body. A record that has ended counts as absent.
-- use admit
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- use record
local failed, _, _, stays, _, ends, kept = record(KEYS[5], now)
if failed then
  return failed
end
-- A record has ended in the millisecond `ends`, but servers keep a key until the end of the millisecond in which it
-- expires. So the key expires at `ends - 1`.
if kept ~= '' and ARGV[7] == '' then
  -- Renew its ttl, because WAIT covers only writes of this connection.
  if ARGV[9] ~= '' then
    redis.call('PEXPIRE', KEYS[5], string.format('%.0f', math.max(stays, ends - 1, now + 1) - now))
  end
  return kept
end
-- A request that wants the lock in any case has run already. Refuse others, because they would end with a record.
if ARGV[10] ~= '' and ARGV[7] == '' then
  return {-5}
end
local found = redis.call('MGET', unpack(KEYS, 2, 4))
-- use take
-- From now on, no earlier owner may store a record, and this owner only under a ballot of at least its fencing token.
stays = math.max(now + ARGV[8], stays)
local head = ARGV[1] .. ' ' .. number .. ' ' .. string.format('%.0f', stays) .. ' '
redis.call('SET', KEYS[5], head .. kept, 'PXAT', string.format('%.0f', math.max(stays, ends - 1)))
return kept ~= '' and {3, number, now, kept} or {3, number, now}
