-- Sets the ttl of many locks anew, each only where its owner still holds it.
-- KEYS[i] a lock; ARGV[3i-2] its owner token; ARGV[3i-1] its ttl in milliseconds; ARGV[3i] '1' to set it where absent.
-- Answers one item per lock: 1 extended, 2 set anew, 0 absent, {remaining milliseconds, tag of the holder} held by
-- another, or a text: the error. All calls are protected, so that one failure does not hide the other locks' answers.
local function extend(key, token, ttl, refill)
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' then
    return holder.err
  end
  if holder == token then
    local done = redis.pcall('PEXPIRE', key, ttl)
    if type(done) == 'table' then
      return done.err
    end
    return 1
  end
  if holder then
    local left = redis.pcall('PTTL', key)
    if type(left) == 'table' then
      return left.err
    end
    return {left, redis.sha1hex(holder)}
  end
  if refill ~= '1' then
    return 0
  end
  local done = redis.pcall('SET', key, token, 'NX', 'PX', ttl)
  if type(done) == 'table' and done.err then
    return done.err
  end
  return 2
end

local answers = {}
for i = 1, #KEYS do
  answers[i] = extend(KEYS[i], ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i])
end
return answers
