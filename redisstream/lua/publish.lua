-- publish 3: store messages of one topic in order, unless they are duplicates.
-- KEYS: the stream; if there are marks, a key that never exists, then the mark of each message
--   that has one.
-- ARGV: most entries the stream may have (0: any number), how long marks live in
--   milliseconds, then for each message its entry and the number of its key (0: none).
-- Returns for each message {id, 1 if it is that of an earlier copy}, or an error, which
--   ends it: what comes after is not stored. Full is the error FULL. If the first ends it, the error is
--   all that it returns: by one such as READONLY the client leaves the server.
-- The mark comes after the entry: one that came first would block what failed. Whether it may be
-- set at all is tried before, on the key that never exists.
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
