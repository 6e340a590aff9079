-- Tries each command that locks need, so that missing rights are found before the first lock.
-- KEYS: the name of a lock, so that Redis checks the user's key patterns; and a name next to it that no key has.
-- ARGV: the calls as texts, in which `KEY` is replaced by the second key. They change nothing (see `rights.rs`).
-- Replies the error of each call, or ''.
local errors = {}
for i, call in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(call, '%S+') do
    words[#words + 1] = word == 'KEY' and KEYS[2] or word
  end
  local reply = redis.pcall(unpack(words))
  errors[i] = type(reply) == 'table' and reply.err or ''
end
return errors
