-- maintain 6: trim settled entries, remove members that are gone, and repair delayed messages.
-- KEYS: the stream, the sorted set of delayed ids, the count of trimmed entries, the mark of a young
--   stream, the turns of the topic and of the group (see below). ARGV: group, most entries to trim, the
--   lease in milliseconds of consumers whose names have none, the id after which the repair continues or
--   '', from how many entries on a stream is not young, the caller, for how many milliseconds it gets a
--   turn, then the groups that must exist.
-- Returns {entries trimmed, 1 if there are more to trim, the id after which the next repair continues}.
-- Turns: one caller trims a topic, and one works on each group. It keeps its turn as long as it calls
-- often enough. To all others the script returns at once, as if there were nothing to do. A server out of
-- memory may refuse a turn. Then every caller does the work.
local key, delayed, trimmed, young, topicTurn, groupTurn = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group, limit, lease, after, caller, turn = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[6], ARGV[7]
-- with ids
-- with lease

local function mine(key) return (redis.call('GET', key) or caller) == caller end
local function keep(key) redis.pcall('SET', key, caller, 'PX', turn) end

-- trim removes entries that every group has settled. If the server lost the stream, it lost the groups
-- too, which come back one after another. So nothing is trimmed while one of the given groups is missing,
-- or while the stream is young and short. XLEN and not XINFO STREAM gives the length, because XINFO STREAM
-- also returns the first and the last body.
-- The floor is the lowest id that some group has not settled: the group's first pending id, or else the
-- id after its last delivered one. Without a group nothing is trimmed.
local function trim()
  local waits = redis.call('EXISTS', young) == 1 and redis.call('XLEN', key) < tonumber(ARGV[5])
  local missing = {}
  for i = 8, #ARGV do missing[ARGV[i]] = true end
  local floor
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    local id
    missing[field(g, 'name')] = nil
    if field(g, 'pending') > 0 then
      id = redis.call('XPENDING', key, field(g, 'name'), '-', '+', 1)[1][1]
    else
      id = field(g, 'last-delivered-id')
      local ms, serial = string.match(id, '^(%d+)%-(%d+)$')
      if #serial < 16 then -- larger numbers would be rounded; then one entry stays
        id = ms .. '-' .. string.format('%.0f', tonumber(serial) + 1)
      end
    end
    if not floor or less(id, floor) then floor = id end
  end
  if not floor or waits or next(missing) then return 0, 0 end
  local removed, more = redis.call('XTRIM', key, 'MINID', '~', floor, 'LIMIT', limit), 0
  if removed * 2 > limit then -- it removes whole nodes, and stops before the one that would be too much
    more = 1
  else
    removed = removed + redis.call('XTRIM', key, 'MINID', '=', floor)
  end
  if removed > 0 then redis.call('INCRBY', trimmed, removed) end
  return removed, more
end

local function forget()
  for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
    local name = field(c, 'name')
    if field(c, 'pending') == 0 and name ~= 'parked' and field(c, 'idle') > leaseOf(name, lease) + 2000 then
      redis.call('XGROUP', 'DELCONSUMER', key, group, name)
    end
  end
end

-- repair finds parked entries that are not in the sorted set and would never be due. Score 0 makes them
-- due at once.
local function repair()
  local reached = ''
  local waiting = redis.call('ZCARD', delayed)
  for _, o in ipairs(redis.call('XPENDING', key, group)[4] or {}) do
    if o[1] == 'parked' and tonumber(o[2]) > waiting then
      local entries = redis.call('XPENDING', key, group, after == '' and '-' or '(' .. after, '+', 200, 'parked')
      for _, p in ipairs(entries) do
        redis.call('ZADD', delayed, 'NX', 0, position(p[1]))
        if #entries == 200 then reached = p[1] end
      end
    end
  end
  return reached
end

local removed, more, reached = 0, 0, ''
if mine(topicTurn) then
  removed, more = trim()
  keep(topicTurn)
end
if mine(groupTurn) then
  forget()
  reached = repair()
  keep(groupTurn)
end
return {removed, more, reached}
