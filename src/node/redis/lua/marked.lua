-- The node's highest fencing token, which stands in for missing counters, and the floor: a lower counter counts as the
-- floor, because restored data may hold old counters.
local mark, floor = known[3], known[4]
local unmarked
if mark and not counted(mark) or floor and not counted(floor) then
  unmarked = 'NOMARK the marker holds no numbers to count on from'
end
mark = mark or '0'
