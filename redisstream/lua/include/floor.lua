-- floor returns the lowest ID that some group of a stream has not settled: the group's first pending ID, or else the
-- ID after its last delivered one. If there is no group, or a group among ARGV[from] to ARGV[to] is missing, nothing
-- counts as settled and floor returns nil: a server that lost the stream lost the groups too, and they come back one
-- after another.
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
