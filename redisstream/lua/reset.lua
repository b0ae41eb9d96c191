-- reset 3: let a group begin anew, with the same members.
-- KEYS: the stream, the sorted set of delayed ids. ARGV: group, where it begins (see startOf).
-- Returns nothing, or the error BEYOND if the id is later than the stream's last.
local key, group = KEYS[1], ARGV[1]
-- with ids
-- with start
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
