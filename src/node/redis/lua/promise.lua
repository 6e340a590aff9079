-- Remembers the owner that the lock was granted to, and its number: from now on no earlier owner may store a record,
-- and this one none under a lower ballot.
-- The key lives at least as long as ARGV[8] says, and as its record.
local kept = alive and string.sub(text, place)
stays = math.max(now + ARGV[8], stays or 0)
local head = token .. ' ' .. number .. ' ' .. string.format('%.0f', stays) .. ' '
redis.call('SET', record, head .. (kept or ''), 'PXAT', string.format('%.0f', math.max(stays, till)))
if kept then
  return {3, number, now, kept}
end
return {3, number, now}
