-- The reply that says so if this node may not vote for `wanted`: the digest of the client's config, a blank, and the
-- server's identity ('any' if lost data does not matter); '' without a config. `vote` is the field of the marker that
-- says for what it may. The client's check-in writes that field, or finds out why it cannot.
local function refused(vote, wanted)
  local digest, told = string.sub(wanted, 1, 40), identity(string.sub(wanted, 42))
  if wanted == '' or vote == digest .. ' ' .. told then
    return nil
  end
  local known = redis.call('HMGET', KEYS[1], 'digest', 'config')
  if known[1] and known[1] ~= digest then
    return {-2, known[2] or '', known[1]}
  end
  return told ~= 'any' and {-1} or nil
end
