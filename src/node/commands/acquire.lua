-- Acquires a lock, all of its keys or none.
-- KEYS: the marker, the owner's tombstone, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the ttl in milliseconds, 3 what the node is to vote for (see `refused`), 4 the proposed
-- fencing token ('' for none), 5 the proposal minus one step ('' if the proposal is not to be used), 6 how long counters
-- live in milliseconds.
-- Replies 1 if the lock is ours now, under the proposed fencing token or under none, {1, fencing token} if it is under
-- another one; {0, remaining milliseconds, tag of the holder, index of the key from 0} if a key is held; {-1} in
-- quarantine, {-2, config, its digest} under another config; {-4} if the owner has a tombstone; an error that begins
-- with NOMARK if the marker has no usable fencing token.
-- use admit
-- A key of another type looks absent.
local found = redis.call('MGET', unpack(KEYS, 2))
-- use take
return number == ARGV[4] and 1 or {1, number}
