-- Remembers whom the lock was granted: nobody who had it before may keep a record from now on.
redis.call('HSET', record, 'last', token)
if ended then
  redis.call('HDEL', record, 'ballot', 'body', 'until')
end
-- That is for as long as it was told, and the key for no less than its record.
if not (kept[1] or kept[4]) or redis.call('PTTL', record) < tonumber(ARGV[12]) then
  redis.call('PEXPIRE', record, ARGV[12])
end
if kept[1] and not ended then
  return {3, number, now, kept[1], kept[2], kept[3]}
end
return {3, number, now}
