-- Whether the number with the digits `a` is less than that with the digits `b`. Lua's numbers cannot hold fencing
-- tokens.
local function less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end
