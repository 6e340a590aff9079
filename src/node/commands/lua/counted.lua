-- The fencing token in `text`, nineteen digits that leave room for the next ones and their hand-overs; that of none for
-- nothing; `nil` for everything else: anybody may write to a key. Nineteen digits compare as texts, and Lua's numbers
-- cannot hold them.
local function counted(text)
  text = text or '0000000000000000000'
  return #text == 19 and string.find(text, '^%d+$') and text <= '9223372036854773759' and text or nil
end
