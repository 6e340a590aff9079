-- What a recall remembers of the grant, see `record`. Where nothing is remembered it is written before the lock: a key of
-- another type looked absent.
local now, till, promise
if usual then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  till = string.format('%.0f', math.max(now + ARGV[8], stays or 0))
  promise = ARGV[1] .. ' ' .. number .. ' ' .. till .. ' '
  if not text then
    usual = (redis.pcall('SET', record, promise, 'NX', 'PXAT', till) or {}).ok
    noted = usual and record
  end
end
