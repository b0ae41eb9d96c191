-- attach 1: make sure of a group, and enter a member.
-- KEYS: the stream. ARGV: group, member, where the group begins if it is new: 0, $ or an id.
-- Returns nothing, or the error BEYOND if the id is later than the stream's last.
-- A group that begins at the end is told how many entries it has behind it, so that its
-- lag is known (Redis 7).
local key, group, member, start = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local function field(list, name)
  for i = 1, #list, 2 do
    if list[i] == name then return list[i + 1] end
  end
end
local exists = redis.call('EXISTS', key) == 1
local known = false
if exists then
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    if field(g, 'name') == group then known = true end
  end
end
if not known then
  local read
  if start ~= '0' then
    local info = exists and redis.call('XINFO', 'STREAM', key)
    local last = exists and field(info, 'last-generated-id') or '0-0'
    local added = exists and field(info, 'entries-added') or (not exists and 0)
    if start == '$' then
      start, read = last, added
    else
      local function parts(id)
        local ms, serial = string.match(id, '^0*(%d*)%-0*(%d*)$')
        return {#ms, ms, #serial, serial}
      end
      local a, b = parts(start), parts(last)
      for i = 1, 4 do
        if a[i] < b[i] then break end
        if a[i] > b[i] then return redis.error_reply('BEYOND the end of the stream, ' .. last) end
        if i == 4 then read = added end
      end
    end
  end
  local made
  if read and tonumber(read) > 0 then
    made = redis.pcall('XGROUP', 'CREATE', key, group, start, 'MKSTREAM', 'ENTRIESREAD', read)
  else
    made = redis.pcall('XGROUP', 'CREATE', key, group, start, 'MKSTREAM')
  end
  if made.err then return made end
end
-- A server out of memory refuses CREATECONSUMER only if nothing was written before: it is then that
-- members must be able to come and settle.
redis.call('XGROUP', 'DELCONSUMER', key, group, member)
redis.call('XGROUP', 'CREATECONSUMER', key, group, member)
return redis.status_reply('OK')
