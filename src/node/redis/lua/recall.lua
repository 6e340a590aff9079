-- Takes the lock of an idempotency key, or tells what its request came to. `acquire` and `promise` stand behind it.
-- KEYS: as for an acquire of one key, then the `record`, which is taken off.
-- ARGV: as for an acquire, then 11 '' unless the lock is wanted in any case, 12 for how long whom it was granted is
-- remembered at least, in milliseconds, 13 '' unless replicas are waited for.
-- Answers as an acquire, but {3, number, now} if the lock is ours, and then also the ballot, body and end of the record,
-- if there is one; {2, ballot, body, end} if there is one and the lock was not taken.
local kept = redis.call('HMGET', record, 'ballot', 'body', 'until', 'last')
-- The key may be there for longer, for the sake of `last`.
local ended = kept[1] and tonumber(kept[3] or 0) <= now
if kept[1] and not ended and ARGV[11] == '' then
  -- Written as it is, as replicas are waited for only with what this connection wrote.
  local left = ARGV[13] ~= '' and redis.call('PTTL', record) or 0
  -- Of what never expires nothing is ours.
  if left > 0 then
    redis.call('PEXPIRE', record, left)
  end
  return {2, kept[1], kept[2], kept[3]}
end

if refusal then
  return refusal
end
