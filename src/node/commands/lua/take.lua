-- Takes the locks of an acquire, all of them or none, and numbers them. Returns their fencing token ('' for none); or `nil`
-- and the reply that says why not. `last` is the index of the last counter, `mark` the node's highest fencing token, and
-- `found` what the keys from the second to that one have.
local function take(last, mark, found)
  if found[1] then
    return nil, {-4}
  end
  for i = 2, #found, 2 do
    if found[i] and found[i] ~= ARGV[1] then
      -- The holder's token is its secret: only a hash of it leaves the server. Those of readers stand behind a blank.
      return nil, {0, redis.call('PTTL', KEYS[i + 1]), redis.sha1hex(string.match(found[i], '^%S*')), i / 2 - 1}
    end
  end
  local number = ARGV[4]
  if number ~= '' then
    -- use next_token
    number = next_token(mark, number, ARGV[5], found)
    if not number then
      return nil, redis.error_reply('NOMARK the marker holds no numbers to count on from')
    end
  end
  for i = 3, last, 2 do
    -- The first write, and so the one that a server without memory refuses.
    local done = redis.pcall('SET', KEYS[i], ARGV[1], found[i - 1] and 'XX' or 'NX', 'PX', ARGV[2])
    if not done or done.err then
      for j = 3, i - 2, 2 do
        redis.call('DEL', KEYS[j])
      end
      return nil, done or redis.error_reply('WRONGTYPE the key holds no lock')
    end
  end
  if number ~= '' then
    for i = 4, last, 2 do
      redis.call('SET', KEYS[i], number, 'PX', ARGV[6])
    end
    if (mark or '') < number then
      redis.call('HSET', KEYS[1], 'hwm', number)
    end
  end
  return number
end
