-- hear 1: note that members of an ephemeral group live, although they may receive nothing.
-- KEYS: the members of the group, its instances, the sorted set of delayed ids. ARGV: for each member its name
--   and ten leases in milliseconds.
-- It does nothing if the group does not exist, or is not ephemeral. It leaves out replaced members.
-- with instance
-- with now
-- with members
local function replaced(member)
  local instance, incarnation = instanceOf(member)
  local latest = instance and redis.call('GET', KEYS[3] .. ':instance:' .. instance) -- in the slot of the group
  return latest and latest ~= incarnation
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  for i = 1, #ARGV, 2 do
    if not replaced(ARGV[i]) then hear(KEYS[1], KEYS[2], ARGV[i], ARGV[i + 1]) end
  end
end
return redis.status_reply('OK')
