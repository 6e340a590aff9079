-- Acquires a lock in the usual case, with few calls; the pieces down to `quick_grant` come before `identity` and the
-- general case, which do the rest. Every call of a command costs a server as much as a good part of the reckoning here.
-- KEYS: the marker, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the ttl in milliseconds, 3 the digest of the config, a blank and the server's identity
-- ('any' if it does not matter); '' without a config; 4 the proposed fencing token ('' for none), 5 the proposal minus
-- one step, 6 how long counters live in milliseconds.
-- Replies 1 if the lock is ours now, under the proposed fencing token or under none, {1, fencing token} if it is under
-- another one; {0, remaining milliseconds, tag of the holder, index of the key from 0} if a key is held.
--
-- The usual case: one key; a `vote` in the marker for this config and identity; a mark, a floor and a counter, as far as
-- they are needed, of nineteen digits like the proposal, so that they compare as texts; and no leap of an hour. Whatever
-- is not so unsets `usual`, before anything is written.
local known = redis.call('HMGET', marker, 'vote', 'hwm')
local vote, mark = known[1], known[2]
local usual = vote and vote == standing and #KEYS == 3
-- The token that it will be; what the counter holds; a key to be removed again if the lock is not ours.
local number, count, noted = ARGV[4], nil, nil
