-- Looks whether another owner holds a lock.
-- KEYS: the marker, then the lock's keys.
-- ARGV: 1 who the server is ('any' or '' if it need not be known), 2 the digest of the charter, 3 the hash of the owner token.
-- Answers {1, the least remaining milliseconds} if it holds all keys, {0} if not; {-1} in quarantine, {-2, charter}
-- under another charter.
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
-- What is written for longer than the node knows of counts for no longer.
return {1, math.min(least, longest)}
