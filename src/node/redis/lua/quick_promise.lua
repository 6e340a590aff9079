if granted then
  if text then
    redis.call('SET', record, promise, 'PXAT', till)
  end
  return {3, number, now}
end
