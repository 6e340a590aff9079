-- Returns the server's identity: `told` as the client read it or, if it ends with 'ask', what the server reports now.
-- That is its process and its last promotion, if any, because a master that was demoted and promoted again keeps its
-- connections but not its locks. Behind Sentinels, the number of the failover comes before 'ask'.
local function identity(told)
  if string.sub(told, -3) ~= 'ask' then
    return told
  end
  local data = redis.call('INFO', 'replication')
  local role, former = string.match(data, 'role:(%a+)'), string.match(data, 'master_replid2:(%x+)')
  local since = string.match(data, 'second_repl_offset:(%-?%d+)')
  told = string.sub(told, 1, -4) .. string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if role ~= 'master' then
    -- A replica has the data of its master, and so another identity.
    return told .. '/' .. role
  elseif since ~= '-1' and string.find(former, '[^0]') then
    return told .. '/' .. former .. ':' .. since
  end
  return told
end
