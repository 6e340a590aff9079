-- Whether the `identity` in a marker is the one in `told`. The part that a promotion adds is cleared once the
-- replication backlog is freed, long after it was written to markers; no data is lost by that.
local function is_told(identity, told)
  local grown = identity and not string.find(told, '/', 1, true)
  return identity == told or grown and string.sub(identity, 1, #told + 1) == told .. '/'
end
