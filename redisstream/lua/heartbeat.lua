-- heartbeat 1: record that members of an ephemeral group are alive, although they may receive nothing.
-- KEYS: the members of the group, its instances, the sorted set of delayed IDs. ARGV: for each member its name
--   and ten leases in milliseconds.
-- Nothing happens if the group does not exist or is not ephemeral. Replaced members are skipped.
-- include instance
-- include now
-- include members
local function replaced(member)
  local instance, incarnation = instanceOf(member)
  local latest = instance and redis.call('GET', KEYS[3] .. ':instance:' .. instance) -- in the slot of the group
  return latest and latest ~= incarnation
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  for i = 1, #ARGV, 2 do
    if not replaced(ARGV[i]) then heartbeat(KEYS[1], KEYS[2], ARGV[i], ARGV[i + 1]) end
  end
end
return redis.status_reply('OK')
