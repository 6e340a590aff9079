-- What most scripts share. It stands in front of them.

-- Whether the number in the digits of `a` is below that of `b`. Lua's own numbers are too short for fencing tokens.
local function less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

-- Who this server is: as the client read it on this connection, or, on nodes with replicas, as the server says now. A
-- master that was demoted and promoted again keeps its connections and has the locks of another.
local function identity(told)
  if told ~= 'ask' then
    return told
  end
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local data = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  return run .. '/' .. data
end

-- What the marker knows: who the node was, under which charter, for leases of what length, up to which number. And, if
-- the node may not vote, the answer that says so. `told` is '' where nobody asks.
local function standing(marker, told, digest)
  local known = redis.call('HMGET', marker, 'identity', 'digest', 'max_lease', 'hwm')
  if told == '' then
    return known
  end
  if known[2] ~= digest and known[2] then
    return known, {-2, redis.call('HGET', marker, 'charter') or ''}
  end
  if known[2] ~= digest or known[1] ~= identity(told) then
    return known, {-1}
  end
  return known
end

-- Writes a key as it is, unless `wanted` is '': replicas are waited for only with what this connection wrote.
local function touch(key, wanted)
  local left = wanted ~= '' and redis.call('PTTL', key) or 0
  -- Of what never expires nothing is ours.
  if left > 0 then
    redis.call('PEXPIRE', key, left)
  end
end

-- Notes the highest number that was ever written here.
local function raise_mark(marker, mark, number)
  if not mark or less(mark, number) then
    redis.call('HSET', marker, 'hwm', number)
  end
end
