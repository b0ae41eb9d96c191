-- settled 1: report which entries a group has settled.
-- KEYS: the stream. ARGV: group, the positions of the entries.
-- Returns for each entry 1 if the group has received it and it is no longer pending, otherwise 0.
local key, group = KEYS[1], ARGV[1]
-- include ids
local last
for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
  if field(g, 'name') == group then last = field(g, 'last-delivered-id') end
end
if not last then return redis.error_reply('NOGROUP no such group') end
local out = {}
for i = 2, #ARGV do
  local id = entryId(ARGV[i])
  out[#out + 1] = not less(last, id) and #redis.call('XPENDING', key, group, id, id, 1) == 0 and 1 or 0
end
return out
