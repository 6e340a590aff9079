-- Acquires a lock in the usual case, with few calls; comes before `identity` and `acquire`, which do the rest. Every call
-- of a command costs a server as much as a good part of the reckoning here.
-- KEYS: the marker, then for each key the lock and its counter.
-- ARGV: 1 the owner token, 2 the ttl in milliseconds, 3 the digest of the config, a blank and the server's identity
-- ('any' if it does not matter); '' without a config; 4 the proposed fencing token ('' for none), 5 the proposal minus
-- one step, 6 how long counters live in milliseconds.
-- Replies 1 if the lock is ours now, under the proposed fencing token or under none, {1, fencing token} if it is under
-- another one; {0, remaining milliseconds, tag of the holder, index of the key from 0} if a key is held.
--
-- The usual case: one key; a `vote` in the marker for this config and identity; a mark, a floor and a counter, as far as
-- they are needed, of nineteen digits like the proposal, so that they compare as texts; and no leap of an hour.
local known = redis.call('HMGET', marker, 'vote', 'hwm', 'max_lease')
local vote, mark = known[1], known[2]
if vote and vote == ARGV[3] and #KEYS == 3 and (known[3] or 0) - ARGV[2] >= 0 then
  local number, lowered = ARGV[4], ARGV[5]
  local usual = true
  if number ~= '' then
    usual = mark and #mark == 19 and #lowered == 19 and #number == 19 and string.find(mark, '^[1-9]%d*$')
      and mark <= '9223372036854773759' and number <= '9223372036854773759' and number - mark <= 3686400000000
    if usual then
      local count = redis.pcall('GET', KEYS[3])
      -- Whatever else a counter holds that is less: it is overwritten.
      if mark > lowered or count and (type(count) == 'table' or #count ~= 19 or count > lowered) then
        local base = count or mark
        local floor = redis.call('HMGET', marker, 'floor')[1] or ''
        usual = type(base) == 'string' and #base == 19 and string.find(base, '^[1-9]%d*$')
          and base <= '9223372036854773759' and (floor == '' or #floor == 19)
        if usual then
          base = base < floor and floor or base
          if lowered < base then
            -- In two parts: Lua's numbers cannot hold all digits.
            local low = string.sub(base, 5) + 1024
            number = string.sub(base, 1, 4) .. string.format('%015.0f', low)
            usual = low < 1e15
          end
        end
      end
    end
  end
  if usual then
    -- What else is written needs no memory that the server could refuse once this is. If it refuses this one, the key may
    -- still be held, and that is the answer then; the rest tells why it is refused.
    if (redis.pcall('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) or {}).ok then
      if number ~= '' then
        redis.call('SET', KEYS[3], number, 'PX', ARGV[6])
        if mark < number then
          redis.call('HSET', marker, 'hwm', number)
        end
        if number ~= ARGV[4] then
          return {1, number}
        end
      end
      return 1
    end
    local holder = redis.pcall('GET', KEYS[2])
    if type(holder) == 'string' and holder ~= ARGV[1] then
      -- The holder's token is its secret: only a hash of it leaves the server.
      return {0, redis.call('PTTL', KEYS[2]), redis.sha1hex(holder), 0}
    end
  end
end
