-- reset 1: let a group begin anew, with the same members.
-- KEYS: the stream, the delayed. ARGV: group, where it begins: 0, $ or an id.
local key, group = KEYS[1], ARGV[1]
local names = {}
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
  for i = 1, #c, 2 do
    if c[i] == 'name' and c[i + 1] ~= 'parked' then names[#names + 1] = c[i + 1] end
  end
end
redis.call('XGROUP', 'DESTROY', key, group)
redis.call('XGROUP', 'CREATE', key, group, ARGV[2])
for _, name in ipairs(names) do redis.call('XGROUP', 'CREATECONSUMER', key, group, name) end
redis.call('DEL', KEYS[2])
return redis.status_reply('OK')
