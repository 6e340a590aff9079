-- Returns the refusal if this node may not cast the `wanted` vote, which is the digest of the client's config, a blank,
-- and the server's identity ('any' if lost data does not matter); or '' without a config. `vote` is the one that the
-- marker allows. Check-ins write it.
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
