-- Reckons the fencing token from the `mark`, the proposal and what the counter holds (`count`).
if usual and number ~= '' then
  local lowered = ARGV[5]
  usual = mark and #mark == 19 and #lowered == 19 and #number == 19 and string.find(mark, '^[1-9]%d*$')
    and mark <= '9223372036854773759' and number <= '9223372036854773759' and number - mark <= 3686400000000
  -- Whatever else a counter holds that is less: it is overwritten.
  if usual and (mark > lowered or count and (type(count) == 'table' or #count ~= 19 or count > lowered)) then
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
