-- use announce
-- Deletes a lock, as far as it is still its owner's, and announces that on `channel`, as `announce`. Returns the number of
-- listeners; -1 if the lock is not the owner's.
local function let_go(key, owner, channel, waited)
  -- A key of another type looks absent.
  if redis.call('MGET', key)[1] ~= owner then
    return -1
  end
  redis.call('DEL', key)
  return announce(channel, waited)
end
