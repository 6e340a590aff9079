-- Releases a lock, as far as it is still its owner's, and announces that.
-- KEYS: the lock's keys, then the owner's tombstone, if one is to be left.
-- ARGV: 1 the owner token, then for each key the channel of its releases, or '' for no notice; then both or none of these:
-- how long the owner had waited in milliseconds, for the notice, and how long the tombstone lives in milliseconds ('' for
-- none).
-- Replies the highest number of listeners if any key was the owner's, else -1.
local owner, keys, listeners, waited = ARGV[1], #KEYS, -1, ''
if #ARGV > keys + 1 then
  local life = ARGV[#ARGV]
  waited = ARGV[#ARGV - 1]
  if life ~= '' then
    -- If the server is out of memory for it, a late command of the owner may still set the lock, for one ttl.
    redis.pcall('SET', KEYS[keys], '', 'PX', life)
    keys = keys - 1
  end
end
for i = 1, keys do
  local key, channel = KEYS[i], ARGV[i + 1]
  -- use let_go
  listeners = told > listeners and told or listeners
end
return listeners
