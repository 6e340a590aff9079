-- Announces a release on `channel`, unless that is '', with how long the holder had `waited`; in a cluster, to those who
-- listen to the slot. Returns the number of listeners.
local function announce(channel, waited)
  -- The notice is a hint. A user without the right to publish must still be able to release.
  local publish = string.sub(channel, 1, 1) == '{' and 'SPUBLISH' or 'PUBLISH'
  local told = channel ~= '' and redis.pcall(publish, channel, waited or '')
  return type(told) == 'number' and told or 0
end
