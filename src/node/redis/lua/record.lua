-- Reads the `record`: the last owner that the lock was granted to, the number that it was granted it with, until when
-- (in milliseconds since 1970) that is remembered at least, a blank after each of them; then, if there is a record, its
-- ballot and its end, a blank after each of them, and its body. The three are what is told of a record, from `place` on.
-- In one text, because one call then does for all. `last` is '' for a record that nobody was granted the lock before.
local text = redis.pcall('GET', record)
local last, promised, stays, place, known_ballot, ends, unreadable
if type(text) == 'table' then
  unreadable = text
elseif text then
  last, promised, stays, place, known_ballot, ends = string.match(text, '^(%S*) (%d*) (%d+) ()(%d*) ?(%d*)')
  if not last then
    unreadable = redis.error_reply('WRONGTYPE the key holds no record')
  end
end
-- The key may live longer than its record, because of `last`. A record that has ended counts as absent.
local alive = ends and ends ~= '' and ends - now > 0
-- Until when the key lives with what is there: servers keep a key for all of the millisecond in which it expires, and a
-- record has ended in that of its end.
local till = math.max(stays or 0, alive and ends - 1 or 0)
