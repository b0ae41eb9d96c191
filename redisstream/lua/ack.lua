-- ack 3: settle deliveries, unless they are another's.
-- KEYS: the stream. ARGV: group, member, then for each delivery its position and its count.
-- Returns for each delivery 0, 1 if it is no longer the member's, 3 if it is nobody's because it was
--   settled. After a failover the group may not have delivered it, as far as the new master knows.
-- with ids
local group, member = ARGV[1], ARGV[2]
local function settled(id)
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if field(g, 'name') == group then return not less(field(g, 'last-delivered-id'), id) end
  end
end
local out = {}
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  local p = redis.call('XPENDING', KEYS[1], group, id, id, 1)[1]
  if p and p[2] == member and p[4] == tonumber(ARGV[i + 1]) then
    redis.call('XACK', KEYS[1], group, id)
    out[#out + 1] = 0
  else
    out[#out + 1] = not p and settled(id) and 3 or 1
  end
end
return out
