if number == proposal then
  return 1
end
return {1, number}
