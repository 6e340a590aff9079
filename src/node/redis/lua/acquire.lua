-- Acquires a lock, all of its keys or none.
-- KEYS: the marker, the owner's tombstone, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the ttl in milliseconds, 3 what the node is to vote for (see `refused`), 4 the proposed
-- fencing token ('' for none), 5 the proposal minus one step, 6 how long counters live in milliseconds.
-- Replies 1 if the lock is ours now, under the proposed fencing token or under none, {1, fencing token} if it is under
-- another one; {0, remaining milliseconds, tag of the holder, index of the key from 0} if a key is held; {-1} in
-- quarantine, {-2, config, its digest} under another config; {-4} if the owner has a tombstone; an error that begins
-- with NOMARK if the marker has no usable fencing token.
local known = redis.call('HMGET', KEYS[1], 'vote', 'hwm')
if known[1] ~= ARGV[3] then
  -- use identity
  -- use refused
  local refusal = refused(known[1], ARGV[3])
  if refusal then
    return refusal
  end
end
if redis.call('GET', KEYS[2]) then
  return {-4}
end
local number, mark = ARGV[4], known[2]
if number ~= '' then
  -- use next_token
  number = next_token(mark, number, ARGV[5])
  if not number then
    return redis.error_reply('NOMARK the marker holds no numbers to count on from')
  end
end
for i = 3, #KEYS, 2 do
  -- The first write, and so the one that a server without memory refuses; the key may still be held.
  local done = redis.pcall('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2])
  if not done or done.err then
    local holder = redis.pcall('GET', KEYS[i])
    if holder ~= ARGV[1] then
      for j = 3, i - 2, 2 do
        redis.call('DEL', KEYS[j])
      end
      if type(holder) ~= 'string' then
        return holder or done
      end
      -- The holder's token is its secret: only a hash of it leaves the server.
      return {0, redis.call('PTTL', KEYS[i]), redis.sha1hex(holder), (i - 3) / 2}
    end
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
if number ~= '' then
  for i = 4, #KEYS, 2 do
    redis.call('SET', KEYS[i], number, 'PX', ARGV[6])
  end
  if (mark or '') < number then
    redis.call('HSET', KEYS[1], 'hwm', number)
  end
end
return number == ARGV[4] and 1 or {1, number}
