-- Ends the share of a reader. The last reader deletes the lock and announces that.
-- KEYS: the lock, then the reader's tombstone, if one is needed.
-- ARGV: 1 the owner token of the reader, 2 how long the tombstone lives in milliseconds or '', 3 the channel of the
-- releases ('' for no notice), 4 the head of the readers' value (see `readers`).
-- Replies like a release.
-- use readers
if ARGV[2] ~= '' then
  -- If the server has no memory for this, a late command of the reader can set its share again for one ttl.
  redis.pcall('SET', KEYS[2], '', 'PX', ARGV[2])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = redis.call('MGET', KEYS[1])[1]
local others, last, is_ours = readers(value or '', ARGV[4], ARGV[1], now)
if not is_ours then
  return -1
elseif others == '' then
  local key, owner, channel, waited = KEYS[1], value, ARGV[3], ''
  -- use let_go
  return told
end
local ttl = string.format('%.0f', last - now)
-- Begin with PEXPIRE, because a server without memory refuses only the first write, and never this one.
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('SET', KEYS[1], ARGV[4] .. others, 'PX', ttl)
return 0
