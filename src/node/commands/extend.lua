-- Sets the ttl of many locks again, each only if its owner still holds it.
-- KEYS: the marker, then for each lock its keys: each with its counter; then, where locks may be set again, for each
-- lock the tombstone of its owner.
-- ARGV: 1 what the node is to vote for (see `refused`); of each of the locks: 2 how many keys it has, 3 its ttl in
-- milliseconds, 4 '1' to set it where it is absent, 5 how long its counters live ('' if it has no fencing token), 6 '1'
-- if they live that long from now on even where they need not be raised; then for each lock its owner token and, if it
-- has one, its fencing token.
-- Replies {1 if the node may vote or else 0, then 'all' if all are extended, else one item per lock: 1 extended, 2 set
-- again, 0 absent, {remaining milliseconds, tag of the holder} held by another owner, or a text: the error}; or
-- {-2, config, its digest} under another config. The calls on locks are protected, so that one failure does not hide the
-- replies of the other locks.
-- use counted
local known = redis.call('HMGET', KEYS[1], 'vote', 'hwm', 'floor')
local refusal
if known[1] ~= ARGV[1] then
  -- use identity
  -- use refused
  refusal = refused(known[1], ARGV[1])
  if refusal and refusal[1] == -2 then
    return refusal
  end
end
local per, ttl, keep = tonumber(ARGV[2]), ARGV[3], ARGV[5]
local step = keep == '' and 1 or 2
local count = (#ARGV - 6) / step
if not (per and per >= 1 and #KEYS > count * 2 * per) then
  -- With less it would not come to an end, and nothing else would run on the server.
  return redis.error_reply('ERR a lock has one key at least')
end
local last = 1 + count * 2 * per
local found = count > 0 and redis.call('MGET', unpack(KEYS, 2, last)) or {}
local mark = counted(known[3]) and counted(known[2])

-- What is to be said of a lock that is not as it was left: absent, another's, or with a lower counter, which is raised.
local function mend(first, owner, number, tombstone)
  local absent, trouble = false, number and not mark and 'NOMARK the marker holds no numbers to count on from'
  for i = first, first + 2 * per - 2, 2 do
    if not found[i] then
      absent = true
    elseif found[i] ~= owner then
      -- It is lost here, and nobody else releases its other keys.
      for j = first, first + 2 * per - 2, 2 do
        if found[j] == owner then
          redis.call('DEL', KEYS[j + 1])
        end
      end
      return {redis.call('PTTL', KEYS[i + 1]), redis.sha1hex(found[i])}
    end
  end
  if absent and (ARGV[4] ~= '1' or redis.call('GET', tombstone)) then
    return 0
  end
  for i = first + 1, number and not trouble and first + 2 * per - 1 or 0, 2 do
    -- A late command must not lower what the mark stands for.
    local value = found[i] and counted(found[i]) or mark
    value = value < number and number or value
    if found[i] ~= value then
      local done = redis.pcall('SET', KEYS[i + 1], value, 'PX', keep)
      trouble = type(done) == 'table' and done.err or trouble
    end
  end
  if number and not trouble and mark < number then
    redis.pcall('HSET', KEYS[1], 'hwm', number)
    mark = number
  end
  -- If the server is out of memory for a counter, the lock is still extended; a key that is set again needs its counter.
  return absent and (trouble or 2) or 1
end

local answers, usual = {refusal and 0 or 1}, true
for lock = 1, count do
  local first, arg = (lock - 1) * 2 * per + 1, 7 + (lock - 1) * step
  local owner, number, answer = ARGV[arg], step == 2 and ARGV[arg + 1], 1
  local same = not number or mark and mark >= number
  for i = first, first + 2 * per - 2, 2 do
    same = same and found[i] == owner and (not number or found[i + 1] == number)
  end
  if not same then
    answer = mend(first, owner, number, KEYS[last + lock])
  end
  if answer == 1 or answer == 2 then
    for i = first + 1, first + 2 * per - 1, 2 do
      if number and ARGV[6] == '1' then
        redis.pcall('PEXPIRE', KEYS[i + 1], keep)
      end
      local done
      if found[i - 1] then
        done = redis.pcall('PEXPIRE', KEYS[i], ttl)
      else
        -- A key of another type looked absent.
        done = redis.pcall('SET', KEYS[i], owner, 'NX', 'PX', ttl) or {err = 'WRONGTYPE the key holds no lock'}
      end
      answer = type(done) == 'table' and done.err or answer
    end
  end
  answers[lock + 1], usual = answer, usual and answer == 1
end
return usual and {answers[1], 'all'} or answers
