-- Acquires the lock of an idempotency key, or returns its record. This is the general case, of which `acquire` and
-- `promise` are the rest.
-- KEYS: as for an acquire of one key, then the `record`, which is removed from the list.
-- ARGV: as for an acquire, then 7 '' unless the lock is wanted even if there is a record, 8 how long the grant is
-- remembered at least, in milliseconds, 9 '' unless replicas are waited for.
-- Replies as an acquire, except {3, fencing token, now} if the lock is ours, with the record if there is one; the
-- record as one text, the ballot, the end and the body with a blank between them, if the lock was not acquired.
if unreadable then
  return unreadable
end
if alive and ARGV[7] == '' then
  -- Its ttl is written again because WAIT covers only writes of this connection.
  if ARGV[9] ~= '' then
    redis.call('PEXPIRE', record, string.format('%.0f', till - now))
  end
  return string.sub(text, place)
end
