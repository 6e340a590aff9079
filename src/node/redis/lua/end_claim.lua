-- Ends the claim of a borrower.
-- KEYS: the loans of the lock's owner, the borrowers at work, then a key of the lock.
-- ARGV: 1 which loan was claimed, 2 by whom, 3 '' unless the borrower ran, 4 the hash of the owner token, 5 for how long
-- that is remembered in milliseconds.
-- Answers 1.
local borrower = redis.call('HMGET', KEYS[1], ARGV[1])[1]
if borrower == ARGV[2] then
  -- It needs no memory.
  redis.call('HDEL', KEYS[2], ARGV[1])
  if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
  end
elseif not borrower and ARGV[3] ~= '' then
  local holder = redis.call('GET', KEYS[3])
  if holder and redis.sha1hex(holder) == ARGV[4] then
    -- So that no copy of the call, nor a late command of ours, has it here. Without memory, one may.
    local noted = redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2])
    if type(noted) == 'number' and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[5]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[5])
    end
  end
end
return 1
