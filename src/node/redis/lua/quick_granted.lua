if granted then
  if number == ARGV[4] then
    return 1
  end
  return {1, number}
end
