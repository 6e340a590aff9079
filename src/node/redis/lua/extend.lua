-- Sets the ttl of many locks again, each only if its owner still holds it.
-- KEYS: the marker, then for each lock its keys: each with its counter.
-- ARGV: 1 the server's identity ('any' or '' if it does not matter), 2 the digest of the config; of each of the locks: 3
-- how many keys it has, 4 its ttl in milliseconds, 5 '1' to set it where it is absent, 6 how long its counters live (''
-- if it has no fencing token), 7 '1' if they live that long from now on even where they need not be raised; then for each
-- lock its owner token and, if it has one, its fencing token.
-- Replies {1 if the node may vote or else 0, then 'all' if all are extended, else one item per lock: 1 extended, 2 set
-- again, 0 absent, {remaining milliseconds, tag of the holder} held
-- by another owner, or a text: the error}; or {-2, config, its digest} under another config. The calls on locks are
-- protected, so that one failure does not hide the replies of the other locks.
if refusal and refusal[1] == -2 then
  return refusal
end
local per, ttl, keep, anew = tonumber(ARGV[3]), ARGV[4], ARGV[6], ARGV[7] == '1'
if not (per and per >= 1 and #KEYS > 1) then
  -- With less it would not come to an end, and nothing else would run on the server.
  return redis.error_reply('ERR a lock has one key at least')
end

local function failed(answer)
  return type(answer) == 'table' and answer.err
end

-- Raises the counters of a lock and sets their ttl. Returns an error if one was not written.
local function count_up(first, last, number)
  if unmarked then
    return unmarked
  end
  local trouble = false
  for i = first, last, 2 do
    -- MGET reports a key of another type as absent.
    local seen = redis.pcall('MGET', KEYS[i + 1])[1]
    -- A late command must not lower what the mark stands for.
    local value = counted(seen) or mark
    if less(value, number) then
      value = number
    end
    local done
    if seen ~= value then
      done = redis.pcall('SET', KEYS[i + 1], value, 'PX', keep)
    elseif anew then
      done = redis.pcall('PEXPIRE', KEYS[i + 1], keep)
    end
    trouble = trouble or failed(done)
  end
  return trouble
end

-- The general case.
local function extend(first, last, token, number)
  local absent = false
  for i = first, last, 2 do
    local holder = redis.pcall('GET', KEYS[i])
    if failed(holder) then
      return holder.err
    end
    if not holder then
      absent = true
    elseif holder ~= token then
      local left = redis.pcall('PTTL', KEYS[i])
      return failed(left) or {left, redis.sha1hex(holder)}
    end
  end
  if absent and ARGV[5] ~= '1' then
    return 0
  end
  if absent and redis.call('GET', string.match(KEYS[first + 1], '^(.-)!fence:') .. '!dead:' .. token) then
    return 0
  end
  if number then
    local trouble = count_up(first, last, number)
    -- If the server is out of memory for a counter, the lock is still extended; a key that is set again needs its
    -- counter.
    if trouble and absent then
      return trouble
    end
    if not trouble and less(mark, number) then
      redis.pcall('HSET', marker, 'hwm', number)
      mark = number
    end
  end
  for i = first, last, 2 do
    local done
    if absent then
      done = redis.pcall('SET', KEYS[i], token, 'PX', ttl)
    else
      done = redis.pcall('PEXPIRE', KEYS[i], ttl)
    end
    if failed(done) then
      return done.err
    end
  end
  return absent and 2 or 1
end

-- The usual case needs one call for each key: the lock is its owner's, and its counters and the mark have its fencing
-- token. A key of another type is absent here.
local found = redis.call('MGET', unpack(KEYS, 2))
local answers, usual = {}, true
local arg, width = 8, keep == '' and 1 or 2
for first = 2, #KEYS, 2 * per do
  local last = first + 2 * per - 2
  local token, number = ARGV[arg], width == 2 and ARGV[arg + 1]
  local same = not number or not unmarked and #mark == #number and mark >= number
  for i = first, last, 2 do
    same = same and found[i - 1] == token and (not number or found[i] == number)
  end
  local answer = 1
  if same then
    for i = first, last, 2 do
      if number and anew then
        redis.pcall('PEXPIRE', KEYS[i + 1], keep)
      end
      answer = failed(redis.pcall('PEXPIRE', KEYS[i], ttl)) or answer
    end
  else
    answer = extend(first, last, token, number)
  end
  answers[#answers + 1] = answer
  usual = usual and answer == 1
  arg = arg + width
end
if usual then
  return {refusal and 0 or 1, 'all'}
end
return {refusal and 0 or 1, unpack(answers)}
