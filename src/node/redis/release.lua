-- Gives a lock back, if it is still ours, and announces it.
-- KEYS[1] the lock; ARGV[1] the owner token; ARGV[2] the channel of its releases, or '' to tell nobody.
-- Answers {1, how many were told} if it was ours, else {0}.
local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' then
  if string.find(holder.err, 'WRONGTYPE', 1, true) then
    -- Whatever it is, it is not our lock.
    return {0}
  end
  return holder
end
if holder ~= ARGV[1] then
  return {0}
end
redis.call('DEL', KEYS[1])
if ARGV[2] == '' then
  return {1, 0}
end
-- The notice is a hint. A user without the right to publish must still be able to release.
-- It carries how many listen, so that they can spread their next attempts; nothing if this user may not ask.
local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2])[2]
if listeners == 0 then
  return {1, 0}
end
local heard = redis.pcall('PUBLISH', ARGV[2], listeners or '')
if type(heard) ~= 'number' then
  heard = 0
end
return {1, heard}
