-- pause 1: pause a group, end its pause, or ask for it.
-- KEYS: the stream, the pause. ARGV: group, then begin, end or ask; for begin also the end of the pause in
--   milliseconds since 1970 or 0, and a text about the pause.
-- Returns the text of the current pause with its beginning in microseconds, or ''. If there is no such group, the
--   error NOGROUP.
-- The key of a pause expires at its end. The DEL comes before the SET, because a server out of memory refuses a
-- SET that is the first write of a script.
local key, pause = KEYS[1], KEYS[2]
-- include ids
local known = false
for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
  if field(g, 'name') == ARGV[1] then known = true end
end
if not known then return redis.error_reply('NOGROUP no such group') end
if ARGV[2] == 'ask' then return redis.call('GET', pause) or '' end
redis.call('DEL', pause)
if ARGV[2] == 'end' then return '' end
local clock = redis.call('TIME')
local now, till = clock[1] * 1000 + clock[2] / 1000, tonumber(ARGV[3])
if till > 0 and till <= now then return '' end
local text = string.format('since=%.0f&', now * 1000) .. ARGV[4]
if till > 0 then redis.call('SET', pause, text, 'PXAT', ARGV[3]) else redis.call('SET', pause, text) end
return text
