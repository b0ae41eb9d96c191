-- ack 4: acknowledge the deliveries that the member still holds.
-- KEYS: the stream. ARGV: group, member, then for each delivery its position and its delivery count.
-- Returns for each delivery: 0 if it was acknowledged now, 1 if it has been delivered again or delayed, 3 if it
--   was acknowledged before. After a failover the new master may not know the delivery of a message: then 1.
-- include ids
local group, member = ARGV[1], ARGV[2]
local last
local function delivered(id)
  if not last then
    for _, g in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
      if field(g, 'name') == group then last = field(g, 'last-delivered-id') end
    end
  end
  return last and not less(last, id)
end
local out = {}
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  local p = redis.call('XPENDING', KEYS[1], group, id, id, 1)[1]
  if p and p[2] == member and p[4] == tonumber(ARGV[i + 1]) then
    redis.call('XACK', KEYS[1], group, id)
    out[#out + 1] = 0
  else
    out[#out + 1] = not p and delivered(id) and 3 or 1
  end
end
return out
