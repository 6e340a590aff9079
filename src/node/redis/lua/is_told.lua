-- Whether the `identity` in a marker is that of the server that is `told`. What a promotion has set of it is cleared once
-- the backlog is freed, long after it was written into markers, and nothing is lost by that.
local function is_told(identity)
  if identity == told then
    return true
  end
  return identity and not string.find(told, '/', 1, true) and string.sub(identity, 1, #told + 1) == told .. '/'
end
