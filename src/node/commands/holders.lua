-- Tells who holds keys. Of an owner token only its hash leaves the server, and the label behind it.
-- KEYS: for each key the lock and its counter.
-- Replies for each key '' if it is free; else {hash of the owner, its label or '', remaining milliseconds (-1: without an
-- end), the counter or ''}.
local found = redis.call('MGET', unpack(KEYS))
local answers = {}
for i = 1, #KEYS, 2 do
  local value, answer = found[i], ''
  if value then
    local digits, label = string.match(value, '^(%x+):([%w%-_.@]+)$')
    label = digits and #digits == 40 and #label <= 64 and label or ''
    answer = {redis.sha1hex(value), label, redis.call('PTTL', KEYS[i]), found[i + 1] or ''}
  end
  answers[#answers + 1] = answer
end
return answers
