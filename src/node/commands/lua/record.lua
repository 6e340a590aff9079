-- Reads the record of an idempotency key at `now`, in milliseconds since 1970. Returns an error or `nil`; the owner and
-- fencing token of the last grant, and until when they are remembered; and the record's ballot, its end, and the text
-- from the ballot on. The last three are '', 0 and '' if there is no record or it has ended.
local function record(key, now)
  local text = redis.pcall('GET', key) or '  0 '
  if type(text) == 'table' then
    return text
  end
  local last, promised, stays, place, ballot, ends = string.match(text, '^(%S*) (%d*) (%d+) ()(%d*) ?(%d*)')
  if not last or #stays > 15 or #ends > 15 then
    return redis.error_reply('WRONGTYPE the key holds no record')
  elseif ends == '' or ends - now <= 0 then
    return nil, last, promised, stays, '', 0, ''
  end
  return nil, last, promised, stays, ballot, ends, string.sub(text, place)
end
