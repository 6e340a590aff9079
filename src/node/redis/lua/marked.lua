-- How far the numbers of the node have come: the highest, which stands in for counters that are missing, and the floor,
-- below which no counter counts. A counter may be older than the data that it came back with.
local mark, floor = known[4], known[5]
local unmarked
if mark and not counted(mark) or floor and not counted(floor) then
  unmarked = 'NOMARK the marker holds no numbers to count on from'
end
mark = mark or '0'
