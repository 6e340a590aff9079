-- Sets `number` to the fencing token of a new grant ('' if none is proposed). Ends the script if the marker has no
-- usable fencing token.
-- `known[2]` is the node's highest fencing token, the `mark`, which stands in for missing counters. `found[3]`,
-- `found[5]` and so on are the counters.
local number, lowered, mark = ARGV[4], ARGV[5], known[2] or ''
-- Usually the proposal can be used without further calls. It must be above the counters and above the mark, which is
-- above the floor. It must begin with the digits of the mark, so that it is not far ahead.
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
  -- A client's clock that is far ahead must not use up the fencing tokens. The limit is an hour ahead of both the mark
  -- and this server's clock.
  local usable = number - mark <= 3686400000000 or number / 1024000000 <= redis.call('TIME')[1] + 3600
  for i = 3, #found, 2 do
    -- A counter that is not a number counts as missing. A counter below the floor counts as the floor, because restored
    -- data can hold old counters.
    local count = counted(found[i] or mark) or mark
    base = base < count and count or base
  end
  if not usable or lowered < base then
    local high, low = tonumber(string.sub(base, 1, 4)), string.sub(base, 5) + 1024
    number = string.format('%04.0f%015.0f', high + math.floor(low / 1e15), low % 1e15)
  end
end
