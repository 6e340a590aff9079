-- This server's clock, in milliseconds since 1970: records end by it.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
