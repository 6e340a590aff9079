-- Takes the locks of an acquire, all of them or none, and sets `number` to their fencing token ('' for none). Ends the
-- script with a reply if that fails. `known` and `found` are as for `number`, and `found` has a lock before each
-- counter.
if found[1] then
  return {-4}
end
for i = 2, #found, 2 do
  if found[i] and found[i] ~= ARGV[1] then
    -- The holder's token is a secret, so only its hash may leave the server.
    return {0, redis.call('PTTL', KEYS[i + 1]), redis.sha1hex(string.match(found[i], '^%S*')), i / 2 - 1}
  end
end
-- use number
for i = 2, #found, 2 do
  -- This must be the first write, because a server without memory refuses only that one.
  local done = redis.pcall('SET', KEYS[i + 1], ARGV[1], found[i] and 'XX' or 'NX', 'PX', ARGV[2])
  if not done or done.err then
    for j = 2, i - 2, 2 do
      redis.call('DEL', KEYS[j + 1])
    end
    return done or redis.error_reply('WRONGTYPE the key holds no lock')
  end
end
if number ~= '' then
  for i = 3, #found, 2 do
    redis.call('SET', KEYS[i + 1], number, 'PX', ARGV[6])
  end
  if mark < number then
    redis.call('HSET', KEYS[1], 'hwm', number)
  end
end
