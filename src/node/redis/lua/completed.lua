if not done then
  -- Older servers raise a text.
  return type(kept) == 'table' and kept or redis.error_reply(tostring(kept))
end
if failed then
  return failed
end
if not kept then
  return {0}
end
return {1, most_told}
