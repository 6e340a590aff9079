-- Deletes a lock, as far as it is still its owner's, and announces that on `channel`, unless that is ''; in a cluster, to
-- those who listen to the slot. Returns the number of listeners; -1 if the lock is not the owner's.
local function let_go(key, owner, channel)
  -- A key of another type looks absent.
  if redis.call('MGET', key)[1] ~= owner then
    return -1
  end
  redis.call('DEL', key)
  -- The notice is a hint. A user without the right to publish must still be able to release.
  local publish = string.sub(channel, 1, 1) == '{' and 'SPUBLISH' or 'PUBLISH'
  local told = channel ~= '' and redis.pcall(publish, channel, '')
  return type(told) == 'number' and told or 0
end
