-- Whether the number in the digits of `a` is below that of `b`. Lua's own numbers are too short for fencing tokens.
local function less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end
