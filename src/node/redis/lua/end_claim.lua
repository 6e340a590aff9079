-- Ends a borrower's claim.
-- KEYS: the loans of the lock's owner, the active borrowers, then a key of the lock.
-- ARGV: 1 the loan, 2 the borrower, 3 '' unless the borrower ran, 4 the hash of the owner token, 5 how long the claim
-- is remembered in milliseconds.
-- Replies 1.
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
    -- So that no copy of the call, nor a late command of ours, gets the loan here. If the server is out of memory, one
    -- may.
    local noted = redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2])
    if type(noted) == 'number' and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[5]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[5])
    end
  end
end
return 1
