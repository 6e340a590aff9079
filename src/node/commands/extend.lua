-- Renews the ttl of several locks, each only if its owner still holds it.
-- KEYS: the marker, then for each lock its keys, each with its counter, and if locks may be set again, the tombstones
-- of all owners.
-- ARGV: 1 the wanted vote (see `refused`); for all locks 2 the number of keys of each, 3 the ttl in milliseconds, 4 '1'
-- to set absent keys again, 5 how long counters live ('' without fencing tokens); then for each lock its owner token
-- and its fencing token, if there is one.
-- Replies {1 if the node may vote and 0 if not, then 'all' if all locks are extended, or one item per lock}: 1
-- extended, 2 set again, 0 absent, {remaining milliseconds, tag of the holder} if another owner holds it, or the text
-- of an error.
-- Replies {-2, config, its digest} if the node has another config.
-- Locks are accessed by `pcall`, so that one failure does not hide the replies for other locks.
-- use counted
local known = redis.call('HMGET', KEYS[1], 'vote', 'hwm', 'floor')
-- use identity
-- use refused
local refusal = refused(known[1], ARGV[1])
if refusal and refusal[1] == -2 then
  return refusal
end
local per, ttl, keep = tonumber(ARGV[2]), ARGV[3], ARGV[5]
local step = keep == '' and 1 or 2
local count = (#ARGV - 5) / step
local last = 1 + count * 2 * per
local found = count > 0 and redis.call('MGET', unpack(KEYS, 2, last)) or {}
local mark = counted(known[3]) and counted(known[2])

-- Extends the lock whose keys are at `first` to `final` in `found`, and raises its counters to `number`.
local function extend(first, final, owner, number, tombstone)
  local absent, rival = false, nil
  for i = first, final, 2 do
    absent, rival = absent or not found[i], rival or found[i] and found[i] ~= owner and i
  end
  if rival then
    -- Leave the other keys, because the holder counts on them until it learns of the loss.
    return {redis.call('PTTL', KEYS[rival + 1]), redis.sha1hex(string.match(found[rival], '^%S*'))}
  elseif absent and (ARGV[4] ~= '1' or redis.call('GET', tombstone)) then
    return 0
  end
  local trouble = number and not mark and 'NOMARK the marker holds no numbers to count on from'
  for i = first + 1, number and mark and final + 1 or 0, 2 do
    if found[i] ~= number then
      -- A late command must not lower the counter below the mark.
      local value = found[i] and counted(found[i]) or mark
      value = value < number and number or value
      local done = found[i] == value or redis.pcall('SET', KEYS[i + 1], value, 'PX', keep)
      trouble = type(done) == 'table' and done.err or trouble
    end
  end
  if number and not trouble and mark < number then
    redis.pcall('HSET', KEYS[1], 'hwm', number)
    mark = number
  end
  -- If the server has no memory for a counter, extend the lock anyway. But a key that is set again needs its counter.
  local answer = absent and (trouble or 2) or 1
  for i = first, answer ~= trouble and final or 0, 2 do
    local done = found[i] and redis.pcall('PEXPIRE', KEYS[i + 1], ttl)
    done = done or redis.pcall('SET', KEYS[i + 1], owner, 'NX', 'PX', ttl)
    -- A key of another type looked absent to MGET.
    answer = not done and 'WRONGTYPE the key holds no lock' or type(done) == 'table' and done.err or answer
  end
  return answer
end

local answers, usual = {refusal and 0 or 1}, true
for lock = 1, count do
  local first, arg = (lock - 1) * 2 * per + 1, 6 + (lock - 1) * step
  local answer = extend(first, first + 2 * per - 2, ARGV[arg], step == 2 and ARGV[arg + 1], KEYS[last + lock])
  answers[lock + 1], usual = answer, usual and answer == 1
end
return usual and {answers[1], 'all'} or answers
