-- Stands before the release of a lock that was lent, and ends it while a borrower is at work: the lock stays for as long
-- as it does without being extended.
-- KEYS: as for a release, then the `loans` and the `borrowers` of the owner, which are taken off.
-- Answers {2} if so.
if redis.call('PTTL', borrowers) ~= -2 then
  return {2}
end
redis.call('DEL', loans)
