-- Announces a release on `channel`, unless that is ''; in a cluster, to those who listen to the slot. Returns the number of
-- listeners.
local function announce(channel)
  -- The notice is a hint. A user without the right to publish must still be able to release.
  local publish = string.sub(channel, 1, 1) == '{' and 'SPUBLISH' or 'PUBLISH'
  local told = channel ~= '' and redis.pcall(publish, channel, '')
  return type(told) == 'number' and told or 0
end
