-- The fencing token of a new grant; `nil` if the marker has no numbers to count on from. `mark` is the node's highest,
-- which stands in for a missing counter; of `found`, every second one from the third on is a counter. One below the
-- floor counts as that: restored data may hold old ones.
-- use counted
local function next_token(mark, proposal, lowered, found)
  mark = counted(mark)
  if not mark then
    return nil
  end
  -- A clock that is far ahead must not use up the fencing tokens: an hour ahead of the mark and of this server's clock.
  -- Both as fractions, which are exact enough for that.
  local usable = proposal <= '9223372036854773759'
    and (proposal - mark <= 3686400000000 or proposal / 1024000000 <= redis.call('TIME')[1] + 3600)
  local base, is_above = '', usable and lowered >= mark
  for i = 3, #found, 2 do
    -- A counter that holds no number counts as missing and is overwritten. One below the proposal decides nothing.
    local count = found[i] or mark
    count = is_above and count <= lowered and count or counted(count) or mark
    base = base < count and count or base
  end
  if not is_above then
    -- Else the proposal is above the floor, too.
    local floor = counted(redis.call('HMGET', KEYS[1], 'floor')[1])
    if not floor then
      return nil
    end
    base = base < floor and floor or base
  end
  if usable and lowered >= base then
    return proposal
  end
  local high, low = tonumber(string.sub(base, 1, 4)), string.sub(base, 5) + 1024
  return string.format('%04.0f%015.0f', high + math.floor(low / 1e15), low % 1e15)
end
