-- reset 1: let a group begin anew, with the same members.
-- KEYS: the stream, the delayed. ARGV: group, where it begins: 0, $ or an id.
-- Returns nothing, or the error BEYOND if the id is later than the stream's last.
local key, group, start = KEYS[1], ARGV[1], ARGV[2]
local names = {}
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
  for i = 1, #c, 2 do
    if c[i] == 'name' and c[i + 1] ~= 'parked' then names[#names + 1] = c[i + 1] end
  end
end
local function parts(id)
  local ms, serial = string.match(id, '^0*(%d*)%-0*(%d*)$')
  return {#ms, ms, #serial, serial}
end
if start ~= '0' and start ~= '$' then
  local info = redis.call('XINFO', 'STREAM', key)
  local last
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
  end
  local a, b = parts(start), parts(last)
  for i = 1, 4 do
    if a[i] < b[i] then break end
    if a[i] > b[i] then return redis.error_reply('BEYOND the end of the stream, ' .. last) end
  end
end
redis.call('XGROUP', 'DESTROY', key, group)
redis.call('XGROUP', 'CREATE', key, group, start)
for _, name in ipairs(names) do redis.call('XGROUP', 'CREATECONSUMER', key, group, name) end
redis.call('DEL', KEYS[2])
return redis.status_reply('OK')
