-- ack 2: settle deliveries, unless they are another's.
-- KEYS: the stream. ARGV: group, member, then for each delivery its position and its count.
-- Returns for each delivery 0, 1 if it is no longer the member's, 3 if it is nobody's.
local group, member = ARGV[1], ARGV[2]
local out = {}
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  local p = redis.call('XPENDING', KEYS[1], group, id, id, 1)[1]
  if p and p[2] == member and p[4] == tonumber(ARGV[i + 1]) then
    redis.call('XACK', KEYS[1], group, id)
    out[#out + 1] = 0
  else
    out[#out + 1] = p and 1 or 3
  end
end
return out
