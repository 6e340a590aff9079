-- Releases a lock, as far as it is still its owner's, and announces that.
-- KEYS: the lock's keys, then the owner's tombstone, if one is to be left.
-- ARGV: 1 the owner token, 2 how long the tombstone lives in milliseconds ('' for none), then for each key the channel
-- of its releases, or '' for no notice.
-- Replies the highest number of listeners if any key was the owner's, else -1.
if ARGV[2] ~= '' then
  -- If the server is out of memory for it, a late command of the owner may still set the lock, for one ttl.
  redis.pcall('SET', KEYS[#KEYS], '', 'PX', ARGV[2])
end
local listeners = -1
for i = 3, #ARGV do
  local holder = redis.pcall('GET', KEYS[i - 2])
  if holder == ARGV[1] then
    redis.call('DEL', KEYS[i - 2])
    -- The notice is a hint. A user without the right to publish must still be able to release.
    local told = ARGV[i] ~= '' and redis.pcall('PUBLISH', ARGV[i], '')
    told = type(told) == 'number' and told or 0
    listeners = told > listeners and told or listeners
  elseif type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
    -- A key of another type is not our lock.
    return holder
  end
end
return listeners
