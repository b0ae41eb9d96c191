-- extend 1: restart the leases of deliveries.
-- KEYS: the stream. ARGV: group, member, then for each delivery its position and its delivery count.
-- Returns for each delivery: 0, 1 if the member is no longer the holder, 2 if its body is gone.
local group, member = ARGV[1], ARGV[2]
local out = {}
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  local p = redis.call('XPENDING', KEYS[1], group, id, id, 1)[1]
  if not p or p[2] ~= member or p[4] ~= tonumber(ARGV[i + 1]) then
    out[#out + 1] = 1
  elseif #redis.call('XCLAIM', KEYS[1], group, member, 0, id, 'JUSTID') == 0 then
    out[#out + 1] = 2
  else
    out[#out + 1] = 0
  end
end
return out
