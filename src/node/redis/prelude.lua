-- What the scripts share. It stands in front of each of them.

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

-- Whether the node may vote; if not, the answer that says so. `told` is '' where nobody asks.
local function standing(marker, told, digest)
  local known = redis.call('HMGET', marker, 'identity', 'digest', 'max_lease', 'hwm', 'charter')
  if told == '' then
    return known
  end
  if known[2] and known[2] ~= digest then
    return known, {-2, known[5] or ''}
  end
  if not known[2] or known[1] ~= identity(told) then
    return known, {-1}
  end
  return known
end

-- Notes the highest number that was ever written here.
local function raise_mark(marker, mark, number)
  if not mark or less(mark, number) then
    redis.call('HSET', marker, 'hwm', number)
  end
end
