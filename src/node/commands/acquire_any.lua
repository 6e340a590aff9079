-- Acquires the first of several locks that is free.
-- KEYS and ARGV: as if all of them were acquired.
-- Replies {1, fencing token or '', index of the key from 0} if one is ours now. Otherwise it replies like an acquire,
-- and if all are held, for the lock that ends first.
-- use admit
local found = redis.call('MGET', unpack(KEYS, 2))
local best, least = 2, nil
for i = 2, #found, 2 do
  -- The remainder puts keys without an expiry last.
  local left = found[i] and found[i] ~= ARGV[1] and redis.call('PTTL', KEYS[i + 1]) % 9007199254740992 or -1
  if not least or left < least then
    best, least = i, left
  end
  if left == -1 then
    break
  end
end
-- Take this lock as if it were the only one.
KEYS[3], KEYS[4] = KEYS[best + 1], KEYS[best + 2]
found = {found[1], found[best], found[best + 1]}
-- use take
return {1, number, best / 2 - 1}
