-- groups 1: list the groups of a stream.
-- KEYS: the stream.
-- Returns their names.
-- include ids
local names = {}
for _, g in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do names[#names + 1] = field(g, 'name') end
return names
