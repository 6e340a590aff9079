-- Gives a lock back, as far as it is still ours, and announces it.
-- KEYS: the owner's tombstone, then the lock's keys.
-- ARGV: 1 the owner token, 2 how long the tombstone stands in milliseconds ('' for none), then for each key the channel
-- of its releases, or '' to tell nobody.
-- Answers {1, how many were told} if any of it was ours, else {0}.
if ARGV[2] ~= '' then
  -- Without memory for it, a late command of the owner may yet set the lock, for one ttl.
  redis.pcall('SET', KEYS[1], '', 'PX', ARGV[2])
end
local ours, most_told, failed = false, 0, nil
for i = 2, #KEYS do
  local holder = redis.pcall('GET', KEYS[i])
  if type(holder) == 'table' then
    -- Of another type: whatever it is, it is not our lock.
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then
      failed = holder
      break
    end
  elseif holder == ARGV[1] then
    ours = true
    redis.call('DEL', KEYS[i])
    local channel = ARGV[i + 1]
    if channel ~= '' then
      -- The notice is a hint. A user without the right to publish must still be able to release.
      -- It carries how many listen, so that they can spread their next attempts; nothing if this user may not ask.
      local listeners = redis.pcall('PUBSUB', 'NUMSUB', channel)[2]
      local told = listeners == 0 and 0 or redis.pcall('PUBLISH', channel, listeners or '')
      if type(told) == 'number' then
        most_told = math.max(most_told, told)
      end
    end
  end
end
