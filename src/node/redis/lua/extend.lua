-- Sets the ttl of many locks anew, each only where its owner still holds it.
-- KEYS: the marker, then for each lock its owner's tombstone and, for each of its keys, the key and its counter.
-- ARGV: 1 who the server is ('any' or '' if it need not be known), 2 the digest of the config, then for each lock: how many
-- keys it has, its owner token, its ttl in milliseconds, '1' to set it where absent, its number ('' for none), how
-- long counters live.
-- Answers {1 if the node may vote or else 0, then one item per lock: 1 extended, 2 set anew, 3 either of them, for longer
-- than the node knows of, 0 absent, {remaining milliseconds, tag of the holder} held by another, or a text: the error};
-- or {-2, config, its digest} under another config. The calls on locks are protected, so that one failure does not hide the other locks' answers.
if refusal and refusal[1] == -2 then
  return refusal
end

local function failed(answer)
  return type(answer) == 'table' and answer.err
end

-- Raises the counters of `count` keys from `first` on, and keeps them; an error where one could not be written.
local function count_up(first, count, number, keep)
  if unmarked then
    return unmarked
  end
  local trouble = false
  for i = first, first + 2 * (count - 1), 2 do
    -- Asked for many, a server takes what is no string for absent.
    local seen = redis.pcall('MGET', KEYS[i + 1])[1]
    -- A command of long ago must not take away what the mark stands for.
    local value = counted(seen) or mark
    if less(value, number) then
      value = number
    end
    local done
    if seen == value then
      done = redis.pcall('PEXPIRE', KEYS[i + 1], keep)
    else
      done = redis.pcall('SET', KEYS[i + 1], value, 'PX', keep)
    end
    trouble = trouble or failed(done)
  end
  return trouble
end

local function extend(tomb, first, count, token, ttl, refill, number, keep)
  local last = first + 2 * (count - 1)
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
  if absent and (refill ~= '1' or redis.call('GET', tomb)) then
    return 0
  end
  if number ~= '' then
    local trouble = count_up(first, count, number, keep)
    -- Without memory to raise a counter the lock goes on all the same; what is set anew needs its number.
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
  if tonumber(ttl) > longest then
    return 3
  end
  return absent and 2 or 1
end

local answers = {refusal and 0 or 1}
local key, arg = 2, 3
while key <= #KEYS do
  local count = tonumber(ARGV[arg])
  answers[#answers + 1] = extend(
    KEYS[key], key + 1, count, ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3], ARGV[arg + 4], ARGV[arg + 5]
  )
  key = key + 1 + 2 * count
  arg = arg + 6
end
return answers
