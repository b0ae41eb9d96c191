-- maintain 5: remove what every group has settled, and members that are gone; mend what waits.
-- KEYS: the stream, the delayed, the trimmed, the young. ARGV: group, most entries to remove, a lease
--   in milliseconds for members whose names do not tell theirs, after which parked id to look on, up to
--   how many entries a stream is young, then the groups that must exist.
-- Returns {entries removed, 1 if there are more to remove, after which id}.
local key, delayed, trimmed, young = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, limit, lease, after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
-- with ids
-- with lease

-- A stream that was lost and appears anew has lost its groups, which come back one after another.
-- So nothing is trimmed while one of the given groups is missing, nor while the stream is young and
-- short. XINFO STREAM would tell more, and bring the first and the last body.
local waits = redis.call('EXISTS', young) == 1 and redis.call('XLEN', key) < tonumber(ARGV[5])
local missing = {}
for i = 6, #ARGV do missing[ARGV[i]] = true end

-- The floor is the oldest id that a group has not settled: its first pending one, or else the one
-- after the last it was given. Without a group nothing is settled.
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

-- What is parked and not among the delayed would wait for ever.
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
