-- release gives back the first entries of a consumer, 500 at most, due at once and with their attempt counted. It
-- returns how many. The claims come before the ZADD, because a server out of memory refuses a ZADD that is the first
-- write of a script.
local function release(key, delayed, group, owner)
  local back, due = {}, {}
  for _, p in ipairs(redis.call('XPENDING', key, group, '-', '+', 500, owner)) do
    local count = p[4] % base
    back[count] = back[count] or {}
    table.insert(back[count], p[1])
    table.insert(due, 0)
    table.insert(due, position(p[1]))
  end
  for count, ids in pairs(back) do
    for _, word in ipairs({'RETRYCOUNT', count, 'JUSTID'}) do table.insert(ids, word) end
    redis.call('XCLAIM', key, group, 'parked', 0, unpack(ids))
  end
  if #due > 0 then redis.call('ZADD', delayed, unpack(due)) end
  return #due / 2
end
