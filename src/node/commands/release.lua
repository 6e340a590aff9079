-- Releases a lock, as far as it is still its owner's, and announces that.
-- KEYS: the lock's keys, then the owner's tombstone, if one is to be left.
-- ARGV: 1 the owner token, 2 how long the tombstone lives in milliseconds ('' for none), 3 how long the owner had waited in
-- milliseconds, for the notice, then for each key the channel of its releases, or '' for no notice.
-- Replies the highest number of listeners if any key was the owner's, else -1.
-- use let_go
if ARGV[2] ~= '' then
  -- If the server is out of memory for it, a late command of the owner may still set the lock, for one ttl.
  redis.pcall('SET', KEYS[#KEYS], '', 'PX', ARGV[2])
end
local listeners = -1
for i = 4, #ARGV do
  listeners = math.max(listeners, let_go(KEYS[i - 3], ARGV[1], ARGV[i], ARGV[3]))
end
return listeners
