if usual and number ~= '' then
  count = redis.pcall('GET', KEYS[3])
end
