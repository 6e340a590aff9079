-- Releases a lock of one key, as far as it is still ours, and announces that; in the usual case, where no tombstone is
-- needed.
-- KEYS: the lock. ARGV: 1 the owner token, 2 the channel of its releases, or '' for no notice.
-- Replies the number of listeners if it was ours, else -1.
local owner = redis.pcall('GET', KEYS[1])
if owner == ARGV[1] then
  redis.call('DEL', KEYS[1])
  -- As `release` has it.
  local told = ARGV[2] ~= '' and redis.pcall('PUBLISH', ARGV[2], '')
  return type(told) == 'number' and told or 0
end
if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
  return owner
end
return -1
