-- Acquires the lock of an idempotency key, or returns its record. `acquire` and `promise` follow this piece.
-- KEYS: as for an acquire of one key, then the `record`, which is removed from the list.
-- ARGV: as for an acquire, then 7 '' unless the lock is wanted even if there is a record, 8 how long the grant is
-- remembered at least, in milliseconds, 9 '' unless replicas are waited for.
-- Replies as an acquire, except {3, fencing token, now} if the lock is ours, with the ballot, body and end of the
-- record if there is one; {2, ballot, body, end} if there is a record and the lock was not acquired.
local kept = redis.call('HMGET', record, 'ballot', 'body', 'until', 'last')
-- The key may live longer than its record, because of `last`.
local ended = kept[1] and tonumber(kept[3] or 0) <= now
if kept[1] and not ended and ARGV[7] == '' then
  -- Its ttl is written again because WAIT covers only writes of this connection.
  local left = ARGV[9] ~= '' and redis.call('PTTL', record) or 0
  -- A key without expiry is not ours.
  if left > 0 then
    redis.call('PEXPIRE', record, left)
  end
  return {2, kept[1], kept[2], kept[3]}
end

if refusal then
  return refusal
end
