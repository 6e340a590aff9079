-- Tries each command that locks need, so that a missing right is known before the first lock.
-- KEYS: a lock's name, for the rule of keys alone; and a name beside locks that nothing has.
-- ARGV: the calls, in words, of which `KEY` stands for the second key. None changes anything: see `rights.rs`.
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
