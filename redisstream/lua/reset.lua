-- reset 3: let a group start again somewhere else, with the same members.
-- KEYS: the stream, the sorted set of delayed IDs. ARGV: group, where it starts (see startOf).
-- Returns nothing, or the error BEYOND if the start is after the stream's last ID.
local key, group = KEYS[1], ARGV[1]
-- include ids
-- include start
local names = {}
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
  local name = field(c, 'name')
  if name ~= 'parked' then names[#names + 1] = name end
end
local start, err = startOf(ARGV[2], field(redis.call('XINFO', 'STREAM', key), 'last-generated-id'))
if err then return err end
redis.call('XGROUP', 'DESTROY', key, group)
redis.call('XGROUP', 'CREATE', key, group, start)
for _, name in ipairs(names) do redis.call('XGROUP', 'CREATECONSUMER', key, group, name) end
redis.call('DEL', KEYS[2])
return redis.status_reply('OK')
