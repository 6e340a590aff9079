-- The step of a recall before the lock is acquired in the usual case: looks for a record, in one call with the counter.
-- KEYS and ARGV as `recall` has them.
local text, now, stays
if usual then
  local found = redis.call('MGET', record, KEYS[3])
  local time = redis.call('TIME')
  text, count, now = found[1], found[2], time[1] * 1000 + math.floor(time[2] / 1000)
  if text then
    local place, ballot, ends
    stays, place, ballot, ends = string.match(text, '^%S* %d* (%d+) ()(%d*) ?(%d*)')
    if stays and ends ~= '' and ends - now > 0 then
      if ARGV[7] == '' and ARGV[9] == '' then
        return string.sub(text, place)
      end
      usual = false
    end
    usual = usual and stays
  end
end
