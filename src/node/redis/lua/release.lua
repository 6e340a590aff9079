-- Releases a lock, as far as it is still ours, and announces that.
-- KEYS: the marker, the owner's tombstone, then the lock's keys.
-- ARGV: 1 the owner token, 2 how long the tombstone lives in milliseconds ('' for none), then for each key the channel
-- of its releases, or '' for no notice.
-- Replies {1, number of listeners} if any key was ours, else {0}.
if ARGV[2] ~= '' then
  -- If the server is out of memory for it, a late command of the owner may still set the lock, for one ttl.
  if not redis.pcall('SET', KEYS[2], '', 'PX', ARGV[2]).err then
    -- Acquires look for tombstones only where no vote is noted.
    redis.pcall('HDEL', KEYS[1], 'vote')
    redis.pcall('HSET', KEYS[1], 'dead', redis.call('TIME')[1] + math.ceil(ARGV[2] / 1000) + 1)
  end
end
local ours, most_told, failed = false, 0, nil
for i = 3, #KEYS do
  local holder = redis.pcall('GET', KEYS[i])
  if type(holder) == 'table' then
    -- A key of another type is not our lock.
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then
      failed = holder
      break
    end
  elseif holder == ARGV[1] then
    ours = true
    redis.call('DEL', KEYS[i])
    local channel = ARGV[i]
    if channel ~= '' then
      -- The notice is a hint. A user without the right to publish must still be able to release.
      local told = redis.pcall('PUBLISH', channel, '')
      if type(told) == 'number' then
        most_told = math.max(most_told, told)
      end
    end
  end
end
