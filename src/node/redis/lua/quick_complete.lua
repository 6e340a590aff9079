-- Stores the record of an idempotency key in the usual case, with few calls: a `vote` in the marker for this config and
-- identity, the lock granted to this owner last, no record, and a ballot, a promise and a floor of as many digits, so
-- that they compare as texts. `complete` does the rest and tells what KEYS and ARGV are.
local known = redis.call('HMGET', marker, 'vote', 'floor')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local done, kept
if known[1] and known[1] == standing then
  local ballot, ends, floor = ARGV[5], tonumber(ARGV[7]) or 0, known[2]
  local text = ballot ~= '' and ends > now and redis.pcall('GET', record)
  if type(text) == 'string' then
    local last, promised, stays = string.match(text, '^(%S+) (%d+) (%d+) $')
    if last == ARGV[1] and #promised == #ballot and promised <= ballot
      and (not floor or #floor == #ballot and floor < ballot) then
      -- If the server refuses it, the rest tells why.
      local till = string.format('%.0f', math.max(stays, ends - 1))
      done = redis.pcall('SET', record, text .. ballot .. ' ' .. ARGV[7] .. ' ' .. ARGV[6], 'PXAT', till).ok
      kept = done
    end
  end
end
