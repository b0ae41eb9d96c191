-- settle 1: remove an entry from a group, whoever holds it.
-- KEYS: the stream, the sorted set of delayed IDs. ARGV: group, the position of the entry.
-- Returns 1 if the group had the entry, 2 if it had settled it before, 0 if it has not received it yet.
local key, group, id = KEYS[1], ARGV[1], ARGV[2]
-- include ids
local last
for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
  if field(g, 'name') == group then last = field(g, 'last-delivered-id') end
end
if not last then return redis.error_reply('NOGROUP no such group') end
if less(last, entryId(id)) then return 0 end
local had = redis.call('XACK', key, group, entryId(id))
redis.call('ZREM', KEYS[2], id)
return 2 - had
