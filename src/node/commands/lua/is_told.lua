-- Whether the `identity` in a marker is `told`. A server forgets its promotion when it frees its replication backlog,
-- which loses no data, so that `told` can lack that part.
local function is_told(identity, told)
  local grown = identity and not string.find(told, '/', 1, true)
  return identity == told or grown and string.sub(identity, 1, #told + 1) == told .. '/'
end
