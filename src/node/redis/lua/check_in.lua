-- Tells whether the node may vote, and begins its quarantine if it may have lost data.
-- KEYS: the marker. ARGV: 1 the server's identity ('any' if lost data does not matter), 2 the digest of the config, 3
-- its text, 4 the longest lease in milliseconds, 5 a random name, 6 '1' if the members are being changed, 7 the format.
-- Replies {1, longest lease, highest fencing token or '', replaced} if it may vote; {2, name of the quarantine, longest
-- lease, longest lease under the previous config, 1 if it has voted under this config or else 0, replaced} if not; {-2,
-- config, its digest, replaced} under another config. `replaced` lists the digests of earlier configs, the last first.
local me = told
local known = redis.call(
  'HMGET', KEYS[1], 'identity', 'digest', 'max_lease', 'hwm', 'quarantine', 'config', 'format', 'replaced', 'earlier', 'accepted'
)
local agreed = known[2] == ARGV[2]
local replaced = known[8] or ''
if (known[2] or known[7]) and not agreed and ARGV[6] ~= '1' then
  return {-2, known[6] or 'format ' .. (known[7] or 'unknown'), known[2] or '', replaced}
end
local lease, earlier = tonumber(agreed and known[3] or 0), tonumber(known[9] or 0)
if not agreed then
  -- The previous config has ended; only locks that are still held under it are waited for once more.
  earlier = math.max(earlier, tonumber(known[3] or 0))
  if known[2] then
    local left, count = {known[2]}, 1
    for digest in string.gmatch(replaced, '%x+') do
      if digest ~= ARGV[2] and digest ~= known[2] and count < 8 then
        count = count + 1
        left[count] = digest
      end
    end
    replaced = table.concat(left, ' ')
  end
  redis.call(
    'HSET', KEYS[1], 'format', ARGV[7], 'digest', ARGV[2], 'config', ARGV[3], 'max_lease', ARGV[4], 'earlier', earlier, 'replaced', replaced
  )
  redis.call('HDEL', KEYS[1], 'identity', 'quarantine', 'accepted', 'vote')
  lease = tonumber(ARGV[4])
elseif lease < tonumber(ARGV[4]) then
  lease = tonumber(ARGV[4])
  redis.call('HSET', KEYS[1], 'max_lease', ARGV[4])
end
if me == 'any' or agreed and is_told(known[1]) then
  return {1, lease, known[4] or '', replaced}
end
local quarantine = known[5]
if not agreed or not quarantine or not is_told(string.match(quarantine, '^(.*):')) then
  quarantine = me .. ':' .. ARGV[5]
  redis.call('HSET', KEYS[1], 'quarantine', quarantine)
  redis.call('HDEL', KEYS[1], 'identity', 'vote')
end
return {2, quarantine, lease, earlier, agreed and known[10] and 1 or 0, replaced}
