-- take 4: deliver messages whose delay is over, then messages whose lease has expired.
-- KEYS: the stream, the sorted set of delayed ids, the swept mark (see below). ARGV: group, member, most
--   deliveries, the member's lease in milliseconds, the owner to continue with, the id after which to
--   continue there, most bytes, the number of this run, the number of the first run whose reply was lost
--   or 0, the highest id that the member has received.
-- Returns {microseconds until the next run, a second at most, the owner and the id to continue with,
--   {{id, delivery count, fields, or nil if the body is gone}, …}}.
-- Lost replies: the member holds entries that it does not know of. They have higher ids than it has
-- received, or the number of the lost run or of a later one. A run gives back some of them, due at once
-- and at the same attempt. It delivers nothing until all are given back.
-- Delays: the score of an id is the time at which it is due. A run first gives score 0 to the ids whose
-- time has come, at most step of them, and then delivers the lowest ids with score 0. Redis keeps equal
-- scores in the order of ids. If more ids may be due, the run delivers nothing and asks for another run.
-- Leases: an owner is a consumer of the group. Its name ends in its lease, and no entry is taken from it
-- earlier. A run looks at the oldest entry of each owner, which finds an owner that died. It also looks
-- at some pages of one owner after another, which finds single entries that a living owner has lost.
-- If there are many owners, one member does this for all. It sets the swept mark to the time, and the
-- others look only at their own entries meanwhile.
local key, delayed, swept = KEYS[1], KEYS[2], KEYS[3]
local group, member, max, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local page, pages, many, rest, step = 200, 5, 20, 250, 1000
-- with lease
-- with count
-- with ids
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local taken, bytes = {}, tonumber(ARGV[7])
local number, lost, high = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]

local function full() return #taken >= max or bytes <= 0 end

if lost > 0 then
  local last = ARGV[6]
  local entries = redis.call('XPENDING', key, group, last == '' and '-' or '(' .. last, '+', step, member)
  for _, p in ipairs(entries) do
    last = p[1]
    if p[4] >= lost * base or less(high, last) then
      redis.call('XCLAIM', key, group, 'parked', 0, last, 'RETRYCOUNT', p[4] % base - 1, 'JUSTID')
      redis.call('ZADD', delayed, 0, position(last))
    end
  end
  return {0, tonumber(ARGV[5]), #entries == step and last or '', {}}
end

-- claim delivers one entry. It claims entries singly, because a body is in Lua before its size is known.
local function claim(id, count, idle)
  local counted = count % base + 1 + number * base
  local entry = redis.call('XCLAIM', key, group, member, idle, id, 'RETRYCOUNT', counted)[1]
  if entry then
    taken[#taken + 1] = {id, counted, entry[2]}
    for _, text in ipairs(entry[2]) do bytes = bytes - #text end
    return
  end
  local p = redis.call('XPENDING', key, group, id, id, 1)[1]
  if not p or p[4] ~= count then
    redis.call('XACK', key, group, id)
    taken[#taken + 1] = {id, counted, false}
  end -- else it was not claimed: the server's clock was set back just now
end

local fallen = redis.call('ZRANGEBYSCORE', delayed, '(0', now, 'LIMIT', 0, step)
if #fallen > 0 then
  local scored = {}
  for i, id in ipairs(fallen) do scored[2 * i - 1], scored[2 * i] = 0, id end
  -- A server out of memory refuses a ZADD only if the script has written nothing before.
  redis.call('ZREM', delayed, unpack(fallen))
  redis.call('ZADD', delayed, unpack(scored))
end
if #fallen == step then return {0, tonumber(ARGV[5]), ARGV[6], {}} end

local done = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', delayed, 0, 0, 'LIMIT', 0, max)) do
  if full() then break end
  local p = redis.call('XPENDING', key, group, id, id, 1)[1]
  if p and p[2] == 'parked' then claim(p[1], p[4], 0) end
  done[#done + 1] = id
end
if #done > 0 then redis.call('ZREM', delayed, unpack(done)) end

-- collect looks at count entries of owner after an id, and delivers those with an expired lease. It
-- returns the last id that it has looked at, or '' if it has reached the owner's last entry.
local function collect(owner, after, count)
  local itsLease = leaseOf(owner, lease)
  local entries = redis.call('XPENDING', key, group, after == '' and '-' or '(' .. after, '+', count, owner)
  local last = after
  for _, p in ipairs(entries) do
    if full() then return last end
    if p[3] >= itsLease then claim(p[1], p[4], itsLease) end
    last = p[1]
  end
  return #entries == count and last or ''
end

local turn, after, wait = tonumber(ARGV[5]), ARGV[6], 1000
if not full() and #redis.call('ZRANGEBYSCORE', swept, now - rest, now) > 0 then
  collect(member, '', page)
  wait = rest
elseif not full() then
  local owners, delays = {}, #taken
  for _, o in ipairs(redis.call('XPENDING', key, group)[4] or {}) do
    if o[1] ~= 'parked' then owners[#owners + 1] = o[1] end
  end
  for _, owner in ipairs(owners) do
    if full() then break end
    local before = #taken
    collect(owner, '', 1)
    if #taken > before then collect(owner, '', page) end
  end
  local ended = 0
  for _ = 1, pages do
    if full() or ended >= #owners then break end
    turn = turn % #owners
    after = collect(owners[turn + 1], after, page)
    if after == '' then turn, ended = turn + 1, ended + 1 end
  end
  -- A server out of memory may refuse the mark. Then every member looks at all owners.
  if #owners > many and #taken == delays then redis.pcall('ZADD', swept, now, 'at') end
end

local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
if #first > 0 then wait = math.min(wait, math.max(0, first[2] - now)) end
return {math.ceil(wait * 1000), turn, after, taken}
