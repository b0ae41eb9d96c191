-- floor returns the lowest id that some group of a stream has not settled: the group's first pending id, or
-- else the id after its last delivered one. Without a group, or without a group among ARGV[from] to
-- ARGV[to], nothing counts as settled, and floor returns nil. If the server lost the stream, it lost the
-- groups too, which come back one after another.
local function floor(key, from, to)
  local missing, lowest = {}, nil
  for i = from, to do missing[ARGV[i]] = true end
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
    if not lowest or less(id, lowest) then lowest = id end
  end
  if next(missing) then return nil end
  return lowest
end
