-- attach 3: make sure of a group, and enter a member.
-- KEYS: the stream, the trimmed, the young. ARGV: group, member, where the group begins if it is new:
--   0, $ or an id, and for how many milliseconds a stream is young.
-- Returns nothing, or the error BEYOND if the id is later than the stream's last.
-- A group that begins at the end is told how many entries it has behind it, so that its
-- lag is known (Redis 7).
-- A stream that Maintain has trimmed nothing of is young from now on: it may be one that was lost,
-- whose other groups are still to come. Where the server counts, it is known that what was trimmed was
-- another stream.
local key, group, member, start = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
-- with ids
local exists = redis.call('EXISTS', key) == 1
local known = false
if exists then
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    if field(g, 'name') == group then known = true end
  end
end
local added, length
if not known then
  local read
  local info = exists and redis.call('XINFO', 'STREAM', key)
  added = exists and field(info, 'entries-added') or (not exists and 0)
  length = exists and field(info, 'length') or 0
  if start ~= '0' then
    local last = exists and field(info, 'last-generated-id') or '0-0'
    if start == '$' then
      start, read = last, added
    else
      if less(last, start) then return redis.error_reply('BEYOND the end of the stream, ' .. last) end
      if not less(start, last) then read = added end
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
if not known then
  if added == length then redis.call('DEL', KEYS[2]) end
  -- Out of memory the server may refuse it.
  if tonumber(ARGV[4]) > 0 and redis.call('EXISTS', KEYS[2]) == 0 then redis.pcall('SET', KEYS[3], '', 'PX', ARGV[4]) end
end
return redis.status_reply('OK')
