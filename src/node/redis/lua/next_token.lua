-- The fencing token of a new grant; `nil` if the marker has no numbers to count on from. Tokens are nineteen digits, which
-- compare as texts: Lua's numbers cannot hold them. `mark` is the node's highest, which stands in for a missing counter,
-- every second key from the fourth on; a counter below the floor counts as that: restored data may hold old ones.
local function next_token(mark, proposal, lowered)
  local last, base = '9223372036854773759', mark or ''
  for i = 4, #KEYS, 2 do
    local count = redis.pcall('GET', KEYS[i])
    -- A counter that holds no number counts as missing and is overwritten.
    if type(count) == 'string' and count > base and #count == 19 and count <= last and not string.find(count, '%D') then
      base = count
    end
  end
  -- A clock that is far ahead must not use up the fencing tokens: an hour ahead of the mark and of this server's clock.
  -- Both as fractions, which are exact enough for that.
  if lowered >= base and proposal <= last and mark and #mark == 19 and not string.find(mark, '%D')
    and (proposal - mark <= 3686400000000 or proposal / 1024000000 <= redis.call('TIME')[1] + 3600) then
    return proposal
  end
  local floor = redis.call('HGET', KEYS[1], 'floor') or ''
  base = base < floor and floor or base
  base = base == '' and string.rep('0', 19) or base
  if #base ~= 19 or base > last or string.find(base .. (mark or ''), '%D') then
    return nil
  end
  local high, low = tonumber(string.sub(base, 1, 4)), string.sub(base, 5) + 1024
  if low >= 1e15 then
    high, low = high + 1, low - 1e15
  end
  return string.format('%04.0f%015.0f', high, low)
end
