-- publish 3: store messages of one topic in order, unless they are duplicates.
-- A mark is a key by which Once remembers the ID of a message. Its value is the id of the entry.
-- KEYS: the stream; if a message has a mark, a key that never exists, then the marks.
-- ARGV: most entries the stream may have (0: any number), how many milliseconds a mark lives, then for
--   each message its entry, and the index of its mark in KEYS (0: none).
-- Returns for each message {id, 0}, or {id of the earlier copy, 1}, or an error, such as FULL at the
--   bound. An error ends the script: later messages are not stored. An error of the first message is
--   the whole reply, so that the client sees an error such as READONLY and leaves the server.
-- A mark is set after its entry was added, because a mark without an entry would block the message.
-- Before the first entry, a SET on the key that never exists tests whether marks may be set at all.
local bound, window = tonumber(ARGV[1]), ARGV[2]
local room = bound > 0 and bound - redis.call('XLEN', KEYS[1])
local out = {}
if KEYS[2] then
  local may = redis.pcall('SET', KEYS[2], '', 'XX', 'PX', 1)
  if type(may) == 'table' and may.err then return may end
end
for i = 3, #ARGV, 2 do
  local mark = KEYS[tonumber(ARGV[i + 1])]
  local earlier = mark and redis.pcall('GET', mark)
  if type(earlier) == 'table' then
    out[#out + 1] = earlier
    break
  elseif earlier then
    out[#out + 1] = {earlier, 1}
  elseif room and room <= 0 then
    out[#out + 1] = redis.error_reply('FULL the stream has ' .. ARGV[1] .. ' entries')
    break
  else
    local id = redis.pcall('XADD', KEYS[1], '*', 'event', ARGV[i])
    if type(id) == 'table' then
      out[#out + 1] = id
      break
    end
    if mark then redis.pcall('SET', mark, id, 'PX', window) end
    if room then room = room - 1 end
    out[#out + 1] = {id, 0}
  end
end
if type(out[1]) == 'table' and out[1].err then return out[1] end
return out
