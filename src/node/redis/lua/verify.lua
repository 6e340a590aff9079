-- Looks whether another owner holds a lock, and notes who claims a loan of it.
-- KEYS: the marker, then the lock's keys, then the `loans` and the `borrowers` of its owner, which are taken off.
-- ARGV: 1 who the server is ('any' or '' if it need not be known), 2 the digest of the config, 3 the hash of the owner
-- token, 4 which loan is claimed ('' for none), 5 by whom, 6 for how long that is remembered in milliseconds.
-- Answers {1, the least remaining milliseconds} if it holds all keys, {0} if not, {2} if it does and the loan is or was
-- another's; {-1} in quarantine, {-2, config, its digest} under another config.
local least
for i = 2, #KEYS do
  local holder = redis.call('GET', KEYS[i])
  if not holder or redis.sha1hex(holder) ~= ARGV[3] then
    return {0}
  end
  local left = redis.call('PTTL', KEYS[i])
  if not least or left < least then
    least = left
  end
end
if ARGV[4] ~= '' then
  local borrower = redis.call('HMGET', loans, ARGV[4])[1]
  if borrower and borrower ~= ARGV[5] then
    return {2}
  end
  if not borrower then
    -- Who is at work first: without memory for the other, none has the loan.
    for _, key in ipairs({borrowers, loans}) do
      redis.call('HSET', key, ARGV[4], ARGV[5])
      if redis.call('PTTL', key) < tonumber(ARGV[6]) then
        redis.call('PEXPIRE', key, ARGV[6])
      end
    end
  end
end
-- What is written for longer than the node knows of counts for no longer.
return {1, math.min(least, longest)}
