-- maintain 5: trim settled entries, remove members that are gone, and repair delayed messages.
-- KEYS: the stream, the sorted set of delayed ids, the count of trimmed entries, the mark of a young
--   stream. ARGV: group, most entries to trim, the lease in milliseconds of consumers whose names have
--   none, the id after which the repair continues or '', from how many entries on a stream is not young,
--   then the groups that must exist.
-- Returns {entries trimmed, 1 if there are more to trim, the id after which the next repair continues}.
local key, delayed, trimmed, young = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, limit, lease, after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
-- with ids
-- with lease

-- If the server lost the stream, it lost the groups too, which come back one after another. So nothing
-- is trimmed while one of the given groups is missing, or while the stream is young and short. XLEN and
-- not XINFO STREAM gives the length, because XINFO STREAM also returns the first and the last body.
local waits = redis.call('EXISTS', young) == 1 and redis.call('XLEN', key) < tonumber(ARGV[5])
local missing = {}
for i = 6, #ARGV do missing[ARGV[i]] = true end

-- The floor is the lowest id that some group has not settled: the group's first pending id, or else
-- the id after its last delivered one. Without a group nothing is trimmed.
local floor
for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
  local id
  missing[field(g, 'name')] = nil
  if field(g, 'pending') > 0 then
    id = redis.call('XPENDING', key, field(g, 'name'))[2]
  else
    id = field(g, 'last-delivered-id')
    local ms, serial = string.match(id, '^(%d+)%-(%d+)$')
    if #serial < 16 then -- larger numbers would be rounded; then one entry stays
      id = ms .. '-' .. string.format('%.0f', tonumber(serial) + 1)
    end
  end
  if not floor or less(id, floor) then floor = id end
end
local removed, more = 0, 0
if floor and not waits and not next(missing) then
  removed = redis.call('XTRIM', key, 'MINID', '~', floor, 'LIMIT', limit)
  if removed * 2 > limit then -- it removes whole nodes, and stops before the one that would be too much
    more = 1
  else
    removed = removed + redis.call('XTRIM', key, 'MINID', '=', floor)
  end
  if removed > 0 then redis.call('INCRBY', trimmed, removed) end
end

for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
  local name = field(c, 'name')
  if field(c, 'pending') == 0 and name ~= 'parked' and field(c, 'idle') > leaseOf(name, lease) + 2000 then
    redis.call('XGROUP', 'DELCONSUMER', key, group, name)
  end
end

-- A parked entry that is not in the sorted set would never be due. Score 0 makes it due at once.
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
return {removed, more, reached}
