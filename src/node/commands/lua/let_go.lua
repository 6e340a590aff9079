-- Deletes the lock in `key`, as far as it is still the `owner`'s, and announces that on `channel`, unless that is '', with
-- how long the owner had `waited`; in a cluster, to those who listen to the slot. Sets `told` to the number of listeners; to
-- -1 if the lock is not the owner's. Ends the script if the server does not say whose it is.
local told, value = -1, redis.pcall('GET', key)
if value == owner then
  redis.call('DEL', key)
  -- The notice is a hint. A user without the right to publish must still be able to release. 123 is the brace of a slot.
  local publish = string.byte(channel) == 123 and 'SPUBLISH' or 'PUBLISH'
  told = tonumber(channel ~= '' and redis.pcall(publish, channel, waited)) or 0
elseif type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  -- A lock that cannot be looked at may still be there. A key of another type is no lock.
  return value
end
