local granted
if usual then
  -- What else is written needs no memory that the server could refuse once this is. If it refuses this one, the key may
  -- still be held, and that is the answer then; the rest tells why it is refused.
  granted = (redis.pcall('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) or {}).ok
  if not granted then
    if noted then
      redis.call('DEL', noted)
    end
    local holder = redis.pcall('GET', KEYS[2])
    if type(holder) == 'string' and holder ~= ARGV[1] then
      -- The holder's token is its secret: only a hash of it leaves the server.
      return {0, redis.call('PTTL', KEYS[2]), redis.sha1hex(holder), 0}
    end
  elseif number ~= '' then
    redis.call('SET', KEYS[3], number, 'PX', ARGV[6])
    if mark < number then
      redis.call('HSET', marker, 'hwm', number)
    end
  end
end
