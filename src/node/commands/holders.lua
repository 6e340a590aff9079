-- Reports who holds keys, and how long results of idempotency keys are stored. Owner tokens are secret, so that only
-- their hashes and labels may leave the server.
-- KEYS: for each key the lock, its counter and its record.
-- Replies for each key {hash of the owner or '', its label or '', remaining milliseconds (-1 without an expiry, -2 if
-- there is no key), the counter or '', remaining milliseconds of its record or -1}.
-- The label of readers lists all of them: 'shared: web-1, web-2'.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- use record
-- use readers

-- Returns '' for an owner token that has another form, because such a text may be secret.
local function label_of(owner)
  local digits, label = string.match(owner, '^(%x+):([%w%-_.@]+)$')
  return digits and #digits == 40 and #label <= 64 and label or ''
end

local answers = {}
for i = 1, #KEYS, 3 do
  local found = redis.call('MGET', KEYS[i], KEYS[i + 1])
  -- In the value of readers, the owner is followed by a blank.
  local owner = found[1] and string.match(found[1], '^%S*')
  local label, sign = label_of(owner or ''), ': '
  for reader in string.gmatch(owner and readers(found[1], owner, '', now) or '', ' (%S+) %d+') do
    local name = label_of(reader)
    label, sign = label .. sign .. (name == '' and 'unnamed' or name), ', '
  end
  local failed, _, _, _, _, ends = record(KEYS[i + 2], now)
  if failed then
    return failed
  end
  answers[#answers + 1] = {owner and redis.sha1hex(owner) or '', label, redis.call('PTTL', KEYS[i]), found[2] or '',
    ends == 0 and -1 or ends - now}
end
return answers
