-- delay 5: move deliveries to the consumer parked until they are due.
-- KEYS: the stream, the sorted set of delayed IDs. ARGV: group, member, then for each delivery its position, its
--   delivery count, the delay in microseconds, 1 if the attempt does not count.
-- Returns for each delivery: 0, 1 if the member is no longer the holder, 2 if its body is gone.
-- One XCLAIM moves all deliveries with the same attempt. The claims come before the ZADD, because a server out of
-- memory refuses a ZADD that is the first write of a script.
local group, member = ARGV[1], ARGV[2]
-- include count
-- include ids
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local out, claims = {}, {}
for i = 3, #ARGV, 4 do
  local id = ARGV[i]
  local p = redis.call('XPENDING', KEYS[1], group, id, id, 1)[1]
  if p and p[2] == member and p[4] == tonumber(ARGV[i + 1]) then
    local count = p[4] % base - tonumber(ARGV[i + 3])
    claims[count] = claims[count] or {}
    table.insert(claims[count], id)
    out[#out + 1] = 2
  else
    out[#out + 1] = 1
  end
end
local moved, due = {}, {}
for count, ids in pairs(claims) do
  local options = {'RETRYCOUNT', count, 'JUSTID'}
  for _, word in ipairs(options) do table.insert(ids, word) end
  for _, id in ipairs(redis.call('XCLAIM', KEYS[1], group, 'parked', 0, unpack(ids))) do moved[id] = true end
end
for n = 1, #out do
  local i = 4 * n - 1
  local ms, serial = string.match(ARGV[i], '^0*(%d+)%-0*(%d+)$') -- as Redis writes it
  if out[n] == 2 and moved[ms .. '-' .. serial] then
    table.insert(due, now + ARGV[i + 2] / 1000)
    table.insert(due, position(ms .. '-' .. serial))
    out[n] = 0
  end
end
if #due > 0 then redis.call('ZADD', KEYS[2], unpack(due)) end
return out
