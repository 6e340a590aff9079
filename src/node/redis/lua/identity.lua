-- `told` is who this server is: as the client read it on this connection, or, on nodes with replicas, as the server
-- says now. A master that was demoted and promoted again keeps its connections and has the locks of another. It is ''
-- where nobody asks. Before 'ask' may stand by which failover it became the master; that stays.
if string.sub(told, -3) == 'ask' then
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local data = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  told = string.sub(told, 1, -4) .. run .. '/' .. data
end
