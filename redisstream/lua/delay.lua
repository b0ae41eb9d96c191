-- delay 1: put deliveries aside until they are due.
-- KEYS: the stream, the delayed. ARGV: group, member, then for each delivery its position, its
--   attempt, milliseconds, 1 if the attempt does not count.
-- Returns for each delivery 0, 1 if it is no longer the member's, 2 if its body is gone.
-- The claim comes before the ZADD: a server out of memory refuses a ZADD that comes first.
local group, member = ARGV[1], ARGV[2]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local out = {}
for i = 3, #ARGV, 4 do
  local id, attempt = ARGV[i], tonumber(ARGV[i + 1])
  local p = redis.call('XPENDING', KEYS[1], group, id, id, 1)[1]
  if not p or p[2] ~= member or p[4] ~= attempt then
    out[#out + 1] = 1
  else
    local count = attempt
    if ARGV[i + 3] == '1' then count = attempt - 1 end
    local moved = redis.call('XCLAIM', KEYS[1], group, 'parked', 0, id, 'RETRYCOUNT', count, 'JUSTID')
    if #moved == 0 then
      out[#out + 1] = 2
    else
      redis.call('ZADD', KEYS[2], now + tonumber(ARGV[i + 2]), id)
      out[#out + 1] = 0
    end
  end
end
return out
