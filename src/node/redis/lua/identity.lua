-- `told` is who this server is: as the client read it on this connection, or, where that is too old or replicas may
-- take its place, as the server says now ('ask'). It is the process and, where it was promoted, its last promotion: a
-- master that was demoted and promoted again keeps its connections and has the locks of another. It is '' where nobody
-- asks. Before 'ask' may stand by which failover it became the master, as its Sentinels have it; that stays.
if string.sub(told, -3) == 'ask' then
  local failover = string.sub(told, 1, -4)
  local data = redis.call('INFO', 'replication')
  local role, former = string.match(data, 'role:(%a+)'), string.match(data, 'master_replid2:(%x+)')
  local since = string.match(data, 'second_repl_offset:(%-?%d+)')
  told = failover .. string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if role ~= 'master' then
    -- It has the data of its master, which has another identity.
    told = told .. '/' .. role
  elseif since ~= '-1' and string.find(former, '[^0]') then
    told = told .. '/' .. former .. ':' .. since
  end
end
