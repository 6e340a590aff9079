-- Takes the lock of an idempotency key, or tells what its request came to. `acquire` stands in front of it.
-- KEYS: as for an acquire of one key, then the record.
-- ARGV: as for an acquire, then 11 '' unless the lock is wanted in any case, 12 for how long whom it was granted is
-- remembered at least, in milliseconds, 13 '' unless replicas are waited for.
-- Answers as an acquire; {2, ballot, body} if there is a record; {3, number, ballot, body} if the lock is ours and there
-- is a record.
local record = table.remove(KEYS)
local known = redis.call('HMGET', record, 'ballot', 'body')
if known[1] and ARGV[11] == '' then
  local _, refusal = standing(KEYS[1], ARGV[3], ARGV[4])
  if refusal then
    return refusal
  end
  touch(record, ARGV[13])
  return {2, known[1], known[2]}
end
local reply = acquire()
if reply[1] ~= 1 then
  return reply
end
redis.call('HSET', record, 'last', ARGV[1])
-- A record that is there stays for as long as it was to stay.
if redis.call('PTTL', record) < tonumber(ARGV[12]) then
  redis.call('PEXPIRE', record, ARGV[12])
end
if known[1] then
  return {3, reply[2], known[1], known[2]}
end
return reply
