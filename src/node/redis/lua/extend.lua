-- Sets the ttl of many locks again, each only if its owner still holds it.
-- KEYS: the marker, then for each lock its owner's tombstone and, for each of its keys, the key and its counter.
-- ARGV: 1 the server's identity ('any' or '' if it does not matter), 2 the digest of the config, then for each lock:
-- how many keys it has, its owner token, its ttl in milliseconds, '1' to set it where it is absent, its fencing token
-- ('' for none), how long counters live.
-- Replies {1 if the node may vote or else 0, then one item per lock: 1 extended, 2 set again, 3 either of them for
-- longer than the node knows of, 0 absent, {remaining milliseconds, tag of the holder} held by another owner, or a
-- text: the error}; or {-2, config, its digest} under another config. The calls on locks are protected, so that one
-- failure does not hide the replies of the other locks.
if refusal and refusal[1] == -2 then
  return refusal
end

local function failed(answer)
  return type(answer) == 'table' and answer.err
end

-- Raises the counters of `count` keys from index `first` on and sets their ttl. Returns an error if one was not
-- written.
local function count_up(first, count, number, keep)
  if unmarked then
    return unmarked
  end
  local trouble = false
  for i = first, first + 2 * (count - 1), 2 do
    -- MGET reports a key of another type as absent.
    local seen = redis.pcall('MGET', KEYS[i + 1])[1]
    -- A late command must not lower what the mark stands for.
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
  if tonumber(ttl) > longest then
    return 3
  end
  return absent and 2 or 1
end

local answers = {refusal and 0 or 1}
local key, arg = 2, 3
while key <= #KEYS do
  local count = tonumber(ARGV[arg])
  if not (count and count >= 1) then
    -- With less it would not come to an end, and nothing else would run on the server.
    return redis.error_reply('ERR a lock has one key at least')
  end
  answers[#answers + 1] = extend(
    KEYS[key], key + 1, count, ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3], ARGV[arg + 4], ARGV[arg + 5]
  )
  key = key + 1 + 2 * count
  arg = arg + 6
end
return answers
