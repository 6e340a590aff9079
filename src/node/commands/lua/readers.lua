-- Reads a `value` of readers: `head`, then for each reader a blank, its owner token, a blank, and its end in
-- milliseconds since 1970. Returns the readers that have not ended by `now`, except `owner`, as text; their latest end
-- or 0; and whether `owner` is one of the readers. Returns `nil` if the value is not one of readers.
local function readers(value, head, owner, now)
  if string.sub(value .. ' ', 1, #head + 1) ~= head .. ' ' then
    return nil
  end
  local others, last, is_ours = {}, 0, false
  for reader, ends in string.gmatch(string.sub(value, #head + 1), ' (%S+) (%d+)') do
    -- Check the length, because other programs can write to the key.
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
