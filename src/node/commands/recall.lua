-- Acquires the lock of an idempotency key, or returns its record.
-- KEYS: as for an acquire of one key, then the record: the last owner that the lock was granted to, its fencing token,
-- until when (in milliseconds since 1970) that is remembered at least, a blank after each of them; then, if there is a
-- record, its ballot and its end, a blank after each of them, and its body. The owner is '' for a record that nobody was
-- granted the lock before. The key may live longer than its record, which counts as absent once it has ended.
-- ARGV: as for an acquire, then 7 '' unless the lock is wanted even if there is a record, 8 how long the grant is
-- remembered at least, in milliseconds, 9 '' unless replicas are waited for, 10 '' unless the node is too full for a
-- further record.
-- Replies as an acquire, except {3, fencing token, now} if the lock is ours, with the record if there is one; the
-- record as one text, the ballot, the end and the body with a blank between them, if the lock was not acquired; {-5} if
-- the node is too full.
-- use admit
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- use record
local failed, _, _, stays, _, ends, kept = record(KEYS[5], now)
if failed then
  return failed
end
-- Servers keep a key for all of the millisecond in which it expires, and a record has ended in that of its end.
if kept ~= '' and ARGV[7] == '' then
  -- Its ttl is written again because WAIT covers only writes of this connection.
  if ARGV[9] ~= '' then
    redis.call('PEXPIRE', KEYS[5], string.format('%.0f', math.max(stays, ends - 1, now + 1) - now))
  end
  return kept
end
-- What is wanted in any case has run already. What begins now would end with a record.
if ARGV[10] ~= '' and ARGV[7] == '' then
  return {-5}
end
local found = redis.call('MGET', unpack(KEYS, 2, 4))
-- use take
-- From now on no earlier owner may store a record, and this one none under a lower ballot than its fencing token.
stays = math.max(now + ARGV[8], stays)
local head = ARGV[1] .. ' ' .. number .. ' ' .. string.format('%.0f', stays) .. ' '
redis.call('SET', KEYS[5], head .. kept, 'PXAT', string.format('%.0f', math.max(stays, ends - 1)))
return kept ~= '' and {3, number, now, kept} or {3, number, now}
