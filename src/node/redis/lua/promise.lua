-- Remembers the owner that the lock was granted to, and its number: from now on no earlier owner may store a record,
-- and this one none under a lower ballot.
redis.call('HSET', record, 'last', token, 'promised', number)
if ended then
  redis.call('HDEL', record, 'ballot', 'body', 'until')
end
-- The key lives at least as long as ARGV[8] says, and as its record.
if not (kept[1] or kept[4]) or redis.call('PTTL', record) < tonumber(ARGV[8]) then
  redis.call('PEXPIRE', record, ARGV[8])
end
if kept[1] and not ended then
  return {3, number, now, kept[1], kept[2], kept[3]}
end
return {3, number, now}
