-- reset 2: let a group begin anew, with the same members.
-- KEYS: the stream, the sorted set of delayed ids. ARGV: group, where it begins: 0, $ or an id.
-- Returns nothing, or the error BEYOND if the id is later than the stream's last.
local key, group, start = KEYS[1], ARGV[1], ARGV[2]
-- with ids
local names = {}
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
  local name = field(c, 'name')
  if name ~= 'parked' then names[#names + 1] = name end
end
if start ~= '0' and start ~= '$' then
  local last = field(redis.call('XINFO', 'STREAM', key), 'last-generated-id')
  if less(last, start) then return redis.error_reply('BEYOND the end of the stream, ' .. last) end
end
redis.call('XGROUP', 'DESTROY', key, group)
redis.call('XGROUP', 'CREATE', key, group, start)
for _, name in ipairs(names) do redis.call('XGROUP', 'CREATECONSUMER', key, group, name) end
redis.call('DEL', KEYS[2])
return redis.status_reply('OK')
