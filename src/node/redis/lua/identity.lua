-- Sets `told` to the server's identity: as the client read it on this connection or, if that is too old or replicas may
-- take the server's place ('ask'), as the server itself says now. The identity is its process and, if it was promoted,
-- its last promotion: a master that was demoted and promoted again keeps its connections but has another server's
-- locks. '' means that the identity does not matter. 'ask' may have a prefix, the number of the failover by which the
-- server became the master according to its Sentinels; the prefix stays.
local asked = string.sub(told, -3) == 'ask'
if asked then
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
