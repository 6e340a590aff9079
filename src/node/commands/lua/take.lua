-- Takes the locks of an acquire, all of them or none, and sets `number` to their fencing token ('' for none); or ends the
-- script with the reply that says why not. `known` and `found` are as for `number`; `found` has a lock before each counter.
if found[1] then
  return {-4}
end
for i = 2, #found, 2 do
  if found[i] and found[i] ~= ARGV[1] then
    -- The holder's token is its secret: only a hash of it leaves the server. Those of readers stand behind a blank.
    return {0, redis.call('PTTL', KEYS[i + 1]), redis.sha1hex(string.match(found[i], '^%S*')), i / 2 - 1}
  end
end
-- use number
for i = 2, #found, 2 do
  -- The first write, and so the one that a server without memory refuses.
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
