-- Returns the fencing token in `text`, zero for `nil`, or `nil` for any other text, which another program may have
-- written. The upper limit leaves room for the next tokens. Tokens are compared as texts of nineteen digits, because
-- Lua's numbers cannot hold them.
local function counted(text)
  text = text or '0000000000000000000'
  return #text == 19 and string.find(text, '^%d+$') and text <= '9223372036854773759' and text or nil
end
