-- Sets `number` to the fencing token of a new grant ('' if none is proposed), or ends the script if the marker has no
-- numbers to count on from. The second item of `known` is the node's highest fencing token, the `mark`, which stands in for
-- a missing counter; of `found`, every second one from the third on is a counter.
local number, lowered, mark = ARGV[4], ARGV[5], known[2] or ''
-- Usually the proposal will do, which costs no more calls: it is above the counters and the mark, which is above the floor;
-- and it begins with the digits of the mark, so it is not far ahead. A counter below it decides nothing, whatever it holds.
local usual = #mark == 19 and string.sub(number, 1, 7) <= mark and mark <= lowered
for i = 3, #found, 2 do
  usual = usual and (found[i] or '') <= lowered
end
if number ~= '' and not usual then
  -- use counted
  mark = counted(known[2])
  local base = counted(redis.call('HMGET', KEYS[1], 'floor')[1])
  if not mark or not base then
    return redis.error_reply('NOMARK the marker holds no numbers to count on from')
  end
  -- A clock that is far ahead must not use up the fencing tokens: an hour ahead of the mark and of this server's clock.
  -- Both as fractions, which are exact enough for that.
  local usable = number - mark <= 3686400000000 or number / 1024000000 <= redis.call('TIME')[1] + 3600
  for i = 3, #found, 2 do
    -- A counter that holds no number counts as missing and is overwritten. One below the floor counts as that: restored
    -- data may hold old ones.
    local count = counted(found[i] or mark) or mark
    base = base < count and count or base
  end
  if not usable or lowered < base then
    local high, low = tonumber(string.sub(base, 1, 4)), string.sub(base, 5) + 1024
    number = string.format('%04.0f%015.0f', high + math.floor(low / 1e15), low % 1e15)
  end
end
