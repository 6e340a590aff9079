-- Acquires all keys of a lock or none.
-- KEYS: the marker, the owner's tombstone, then each lock and its counter.
-- ARGV: 1 the owner token, 2 the ttl in milliseconds, 3 the wanted vote (see `refused`), 4 the proposed fencing token
-- or '', 5 the proposal minus one step ('' to ignore the proposal), 6 how long counters live in milliseconds.
-- Replies:
-- 1 if the lock is ours, with the proposed fencing token or without one; {1, fencing token} if it has another one;
-- {0, remaining milliseconds, tag of the holder, index of the key from 0} if a key is held;
-- {-1} in quarantine; {-2, config, its digest} if the node has another config; {-4} if the owner has a tombstone;
-- an error that begins with NOMARK if the marker has no usable fencing token.
-- use admit
-- Use MGET because a key of another type looks absent to it.
local found = redis.call('MGET', unpack(KEYS, 2))
-- use take
return number == ARGV[4] and 1 or {1, number}
