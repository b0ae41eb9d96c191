-- index 1: set when members of ephemeral groups must be checked, and return the members whose time has come.
-- KEYS: the index of the members of ephemeral groups of all topics, a sorted set by time. ARGV: how many members
--   to return at most, for how many milliseconds the caller has them to itself, then for each member to update
--   its name in the index and the milliseconds until it must be checked, or 0 if it has ended.
-- Returns names in the index. If the caller dies before it checks them, another caller gets them later.
local index = KEYS[1]
-- include now
-- set sets when a member must be checked. The ZREM comes first, because a server out of memory refuses a ZADD
-- that is the first write of a script.
local function set(name, wait)
  redis.call('ZREM', index, name)
  if wait > 0 then redis.call('ZADD', index, string.format('%.0f', now + wait), name) end
end
for i = 3, #ARGV, 2 do set(ARGV[i], tonumber(ARGV[i + 1])) end
local due = {}
if tonumber(ARGV[1]) > 0 then due = redis.call('ZRANGEBYSCORE', index, '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[1]) end
for _, name in ipairs(due) do set(name, tonumber(ARGV[2])) end
return due
