-- publish 4: store messages of one topic in order, unless they are duplicates.
-- A mark is a key by which Once remembers the ID of a message. Its value is the id of the entry.
-- KEYS: the stream; if a message has a mark, a key that never exists, then the marks.
-- ARGV: most entries the stream may have (0: any number), how many milliseconds a mark lives, then for
--   each message the index of its mark in KEYS (0: none), the id of its entry or *, the number of
--   the following arguments that are the fields of its entry, and these fields.
-- Returns for each message {id, 0}, or {id of the earlier copy, 1}, or {error, 2} if the server refuses
--   a given id, or an error, such as FULL at the bound. Such an error ends the script: later messages
--   are not stored. If it is of the first message it is the whole reply, so that the client sees an
--   error such as READONLY and leaves the server.
-- A mark is set after its entry was added, because a mark without an entry would block the message.
-- Before the first entry, a SET on the key that never exists tests whether marks may be set at all.
local bound, window = tonumber(ARGV[1]), ARGV[2]
local room = bound > 0 and bound - redis.call('XLEN', KEYS[1])
local out = {}
if KEYS[2] then
  local may = redis.pcall('SET', KEYS[2], '', 'XX', 'PX', 1)
  if type(may) == 'table' and may.err then return may end
end
local stop = nil
local i = 3
while i <= #ARGV and not stop do
  local mark, id, last = KEYS[tonumber(ARGV[i])], ARGV[i + 1], i + 2 + tonumber(ARGV[i + 2])
  local earlier = mark and redis.pcall('GET', mark)
  if type(earlier) == 'table' then
    stop = earlier
  elseif earlier then
    out[#out + 1] = {earlier, 1}
  elseif room and room <= 0 then
    stop = redis.error_reply('FULL the stream has ' .. ARGV[1] .. ' entries')
  else
    local added = redis.pcall('XADD', KEYS[1], id, unpack(ARGV, i + 3, last))
    if type(added) == 'string' then
      if mark then redis.pcall('SET', mark, added, 'PX', window) end
      if room then room = room - 1 end
      out[#out + 1] = {added, 0}
    elseif id ~= '*' and string.find(added.err, 'XADD', 1, true) then
      out[#out + 1] = {added.err, 2}
    else
      stop = added
    end
  end
  i = last + 1
end
if stop then
  if #out == 0 then return stop end
  out[#out + 1] = stop
end
return out
