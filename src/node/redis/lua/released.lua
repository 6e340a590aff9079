if failed then
  return failed
end
if not ours then
  return {0}
end
return {1, most_told}
