-- Deletes the keys of a lock that its owner still holds, and announces that.
-- KEYS: the lock's keys, then the owner's tombstone, if one is needed.
-- ARGV: 1 the owner token, then for each key the channel of its releases ('' for no notice). Optionally, both of these
-- follow: how long the owner had waited in milliseconds, for the notice, and how long the tombstone lives in
-- milliseconds or ''.
-- Replies the highest number of listeners, or -1 if the owner held no key.
local owner, keys, listeners, waited = ARGV[1], #KEYS, -1, ''
if #ARGV > keys + 1 then
  local life = ARGV[#ARGV]
  waited = ARGV[#ARGV - 1]
  if life ~= '' then
    -- If the server has no memory for this, a late command of the owner can set the lock again for one ttl.
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
