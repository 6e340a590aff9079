-- Releases a lock for one of its readers. The last one frees it, and announces that.
-- KEYS: the lock, then the reader's tombstone, if one is to be left.
-- ARGV: 1 the owner token of the reader, 2 how long the tombstone lives in milliseconds ('' for none), 3 the channel of the
-- releases, or '' for no notice, 4 how the value of readers begins (see `readers`).
-- Replies as a release.
-- use readers
if ARGV[2] ~= '' then
  -- As for a release.
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
-- A server without memory refuses only the first write of a script, and this one never.
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('SET', KEYS[1], ARGV[4] .. others, 'PX', ttl)
return 0
