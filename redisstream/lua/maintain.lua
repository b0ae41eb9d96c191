-- maintain 7: trim settled entries, remove members that are gone, and repair delayed messages.
-- KEYS: the stream, the sorted set of delayed IDs, the count of trimmed entries, the mark of a young stream, the
--   turns of the topic and of the group (see below), the settings of the topic. ARGV: group, how many entries to
--   trim at most, the lease in milliseconds of consumers whose names have none, the ID after which the repair
--   continues or '', from how many entries on a stream is not young, the caller, for how many milliseconds the
--   caller gets a turn, the limit of topics without their own or 0, then the groups that must exist.
-- Returns {entries trimmed, 1 if there are more to trim, the ID after which the next repair continues}.
-- Turns: one caller trims a topic, and one works on each group. It keeps its turn as long as it calls often
-- enough. For all others the script returns at once, as if there were nothing to do. A server out of memory may
-- refuse to store a turn; then every caller does the work.
local key, delayed, trimmed, young, topicTurn, groupTurn, settings = unpack(KEYS)
local group, limit, lease, after, caller, turn = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[6], ARGV[7]
-- include ids
-- include lease
-- include floor
-- include settings
-- include now

local function mine(key) return (redis.call('GET', key) or caller) == caller end
local function keep(key) redis.pcall('SET', key, caller, 'PX', turn) end

-- trim removes entries that every group has settled and that are older than Keep, by the time in their IDs.
-- Nothing is trimmed while the stream is young and short. The length comes from XLEN, because XINFO STREAM
-- would also return the first and the last body.
local function trim()
  local bound = settingOf(settings, 'max_messages', tonumber(ARGV[8]))
  local most = tonumber(ARGV[5])
  if bound > 0 then most = math.min(most, math.floor(bound / 2)) end
  if redis.call('EXISTS', young) == 1 and redis.call('XLEN', key) < most then return 0, 0 end
  local lowest = floor(key, 9, #ARGV)
  if not lowest then return 0, 0 end
  local keep = settingOf(settings, 'keep', 0)
  if keep > 0 then
    local kept = string.format('%.0f-0', math.max(0, now - keep))
    if less(kept, lowest) then lowest = kept end
  end
  local removed, more = redis.call('XTRIM', key, 'MINID', '~', lowest, 'LIMIT', limit), 0
  if removed * 2 > limit then -- it removes whole nodes, and stops before one that exceeds the limit
    more = 1
  else
    removed = removed + redis.call('XTRIM', key, 'MINID', '=', lowest)
  end
  if removed > 0 then redis.call('INCRBY', trimmed, removed) end
  return removed, more
end

local function removeMembers()
  for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
    local name = field(c, 'name')
    if field(c, 'pending') == 0 and name ~= 'parked' and field(c, 'idle') > leaseOf(name, lease) + 2000 then
      redis.call('XGROUP', 'DELCONSUMER', key, group, name)
    end
  end
end

-- repair finds parked entries that are missing from the sorted set and would never become due. Score 0 makes
-- them due at once.
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
  removeMembers()
  reached = repair()
  keep(groupTurn)
end
return {removed, more, reached}
