-- Remembers whom the lock was granted: nobody who had it before may keep a record from now on.
redis.call('HSET', record, 'last', token)
-- A record that is there stays for as long as it was to stay.
if not (kept[1] or kept[3]) or redis.call('PTTL', record) < tonumber(ARGV[12]) then
  redis.call('PEXPIRE', record, ARGV[12])
end
if kept[1] then
  return {3, number, kept[1], kept[2]}
end
