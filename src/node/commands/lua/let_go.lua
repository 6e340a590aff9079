-- Deletes the lock in `key` if `owner` still holds it. Announces that on `channel` (unless that is '') with how long
-- the owner had `waited`. Sets `told` to the number of listeners, or to -1 if another owner or none holds the lock.
-- Ends the script with an error if the lock cannot be read.
local told, value = -1, redis.pcall('GET', key)
if value == owner then
  redis.call('DEL', key)
  -- Ignore errors, because a user without the right to publish must still be able to release. In a cluster, the channel
  -- begins with a brace (123) and is published in its slot.
  local publish = string.byte(channel) == 123 and 'SPUBLISH' or 'PUBLISH'
  told = tonumber(channel ~= '' and redis.pcall(publish, channel, waited)) or 0
elseif type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  -- A lock that cannot be read may still exist. A key of another type is not a lock.
  return value
end
