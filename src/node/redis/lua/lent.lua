-- Comes before the release of a lock that was lent, and ends the script while a borrower is active: the lock then stays
-- until its ttl ends.
-- KEYS: as for a release, then the `loans` and the `borrowers` of the owner, which are removed from the list.
-- Replies {2} if so.
if redis.call('PTTL', borrowers) ~= -2 then
  return {2}
end
redis.call('DEL', loans)
