-- The step of a recall before the lock is acquired in the usual case: looks for a record, in one call with the counter.
-- KEYS and ARGV as `recall` has them. A record that is there has not ended, unless the grant is remembered for longer.
local text, stays
if usual then
  local found = redis.call('MGET', record, KEYS[3])
  text, count = found[1], found[2]
  if text then
    local place, ballot, ends
    stays, place, ballot, ends = string.match(text, '^%S* %d* (%d+) ()(%d*) ?(%d*)')
    usual = stays and ends == ''
    if stays and not usual and ends - stays > 0 and ARGV[7] == '' and ARGV[9] == '' then
      return string.sub(text, place)
    end
  end
end
