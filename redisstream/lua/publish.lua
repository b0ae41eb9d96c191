-- publish 5: store messages of one topic in order, except duplicates.
-- A mark is a key by which Once remembers the ID of a message. Its value is the ID of the entry.
-- KEYS: the stream; if the topic has a limit, its settings and the count of trimmed entries; if a message has a
--   mark, a key that never exists, then the marks.
-- ARGV: the limit of topics without their own (0: none), for how many milliseconds a mark lives, the index in KEYS
--   of the settings (0: there is no limit), the index of the key that never exists (0: there are no marks), the
--   number of groups that must exist, these groups, then for each message the index of its mark in KEYS (0: none),
--   the ID of its entry or *, the number of arguments that are its fields, and these fields.
-- Returns for each message {id, 0}, {id of the earlier copy, 1}, {error, 2} if the server refuses a given ID, or an
--   error, such as FULL at the limit. Such an error ends the script, so later messages are not stored. If it
--   concerns the first message it is the whole reply, so that the client sees an error such as READONLY and leaves
--   the server.
-- A mark is set after its entry was added, because a mark without an entry would block the message. Before the
-- first entry, a SET on the key that never exists tests whether marks may be set at all.
-- At the limit, the oldest entries that every group has settled are removed: as many as needed, 1000 at most.
local key, window, settings, never = KEYS[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local groups = 5 + ARGV[5]
-- include ids
-- include floor
-- include settings
local bound = settings > 0 and settingOf(KEYS[settings], 'max_messages', tonumber(ARGV[1])) or 0
local room = bound > 0 and bound - redis.call('XLEN', key)
local lowest, steps = nil, 0

-- makeRoom removes settled entries until there is room for one more. If the limit was lowered, the first XTRIM
-- removes whole nodes. The others remove one entry each, because the rest may have to be kept.
local function makeRoom()
  lowest = lowest or floor(key, 6, groups)
  if not lowest then return end
  local before = room
  if room < -100 then
    room = room + redis.call('XTRIM', key, 'MINID', '~', lowest, 'LIMIT', math.min(1 - room, 10000))
  end
  while room <= 0 and steps < 1000 do
    local first = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
    if not first or not less(first[1], lowest) then break end
    redis.call('XTRIM', key, 'MAXLEN', '=', bound - room - 1)
    room, steps = room + 1, steps + 1
  end
  if room > before then redis.call('INCRBY', KEYS[settings + 1], room - before) end
end

-- add adds an entry with the fields from ARGV[first] to ARGV[last]. It returns the entry's ID, or an error.
local function add(id, first, last)
  if room and room <= 0 then
    local made, failure = pcall(makeRoom)
    if not made then return type(failure) == 'table' and failure or redis.error_reply(failure) end
    if room <= 0 then return redis.error_reply('FULL the stream has ' .. bound - room .. ' entries') end
  end
  return redis.pcall('XADD', key, id, unpack(ARGV, first, last))
end

local out = {}
if never > 0 then
  local may = redis.pcall('SET', KEYS[never], '', 'XX', 'PX', 1)
  if type(may) == 'table' and may.err then return may end
end
local stop = nil
local i = groups + 1
while i <= #ARGV and not stop do
  local mark, id, last = KEYS[tonumber(ARGV[i])], ARGV[i + 1], i + 2 + tonumber(ARGV[i + 2])
  local earlier = mark and redis.pcall('GET', mark)
  if type(earlier) == 'table' then
    stop = earlier
  elseif earlier then
    out[#out + 1] = {earlier, 1}
  else
    local added = add(id, i + 3, last)
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
