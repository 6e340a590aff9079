-- Notes in the marker that the node may vote, for the next acquire: what that acquire will say of the config and of the
-- identity. Whatever puts the node into quarantine or under another config removes it, and so does a tombstone: while
-- there may be one, acquires have to look for it.
if standing ~= '' and not asked and not unmarked and vote ~= standing then
  local dead = redis.call('HMGET', marker, 'dead')[1]
  -- What is no number was written by somebody else.
  if dead and redis.call('TIME')[1] - (tonumber(dead) or 0) > 0 then
    redis.call('HDEL', marker, 'dead')
    dead = nil
  end
  if not dead then
    redis.call('HSET', marker, 'vote', standing)
  end
end
