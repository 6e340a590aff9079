-- Of `value`, in which readers share a lock: those that have not ended by `now`, without `owner`, as text; the latest of
-- their ends or 0; and whether `owner` is among them, too. `nil` if readers do not have the lock. The value is `head`, then
-- for each reader a blank, its owner token, a blank, and its end in milliseconds since 1970.
local function readers(value, head, owner, now)
  if string.sub(value .. ' ', 1, #head + 1) ~= head .. ' ' then
    return nil
  end
  local others, last, is_ours = {}, 0, false
  for reader, ends in string.gmatch(string.sub(value, #head + 1), ' (%S+) (%d+)') do
    -- Anybody may write to a key.
    if #ends <= 15 and ends - now > 0 then
      if reader == owner then
        is_ours = true
      else
        others[#others + 1] = ' ' .. reader .. ' ' .. ends
        last = math.max(last, ends)
      end
    end
  end
  return table.concat(others), last, is_ours
end
