-- Tells whether the given owner holds a lock, and notes a claim to a loan of it.
-- KEYS: the marker, then the lock's keys, then the `loans` and the `borrowers` of its owner, which are removed from the
-- list.
-- ARGV: 1 the server's identity ('any' or '' if it does not matter), 2 the digest of the config, 3 the hash of the
-- owner token, 4 the loan that is claimed ('' for none), 5 the borrower, 6 how long the claim is remembered in
-- milliseconds.
-- Replies {1, the least remaining milliseconds} if the owner holds all keys, {0} if not, {2} if it does and the loan is
-- or was another borrower's; {-1} in quarantine, {-2, config, its digest} under another config.
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
    -- The active borrowers first: if the server is out of memory for the other, nobody has the loan.
    for _, key in ipairs({borrowers, loans}) do
      redis.call('HSET', key, ARGV[4], ARGV[5])
      if redis.call('PTTL', key) < tonumber(ARGV[6]) then
        redis.call('PEXPIRE', key, ARGV[6])
      end
    end
  end
end
return {1, least}
