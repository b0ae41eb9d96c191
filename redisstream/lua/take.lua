-- take 9: deliver messages whose delay is over, then messages whose lease has expired.
-- KEYS: the stream, the sorted set of delayed IDs, the sweep mark (see below), the pause of the group; if the member
--   belongs to an instance, also the mark of the instance. ARGV: group, member, how many messages to deliver at
--   most, the member's lease in milliseconds, the owner to continue with, the ID after which to continue there, how
--   many bytes to deliver at most, the number of this run, the number of the first run whose reply was lost or 0,
--   the highest ID that the member has received; if it belongs to an instance, also 1 if the mark must be renewed,
--   for how many milliseconds it lives, and the members that the member has just replaced.
-- Returns {microseconds until the next run, a second at most, 1 if a delay ends then, the owner and the ID to
--   continue with, {{id, delivery count, fields, or nil if the body is gone}, …}}. If a later incarnation of the
--   instance has attached, the error REPLACED; what the member holds is given back. If the group is paused, the
--   error PAUSED and the text of the pause.
-- Replaced members: a read that began before its member was replaced may still get entries, which are given back.
-- Lost replies: the member holds entries that it does not know of. Their IDs are higher than any that it has
-- received, or they have the number of the lost run or of a later one. Each run gives back some of them, due at once
-- and at the same attempt, and delivers nothing until all are given back.
-- Delays: the score of an ID is the time at which it is due. A run first gives score 0 to IDs whose time has come, at
-- most step of them, and then delivers the lowest IDs with score 0: Redis sorts equal scores by ID. If more IDs may
-- be due, the run delivers nothing and asks to be run again.
-- Leases: an owner is a consumer of the group. Its name ends in its lease, before which no entry is taken from it. A
-- run looks at the oldest entry of each owner, which reveals owners that died. It also looks at all entries of one
-- owner after another, which finds single entries that a living owner has lost: glance entries at most, with a filter
-- of the server, or some pages of an owner that has more. If there are many owners, one member does this for all: it
-- sets the sweep mark, and until the mark expires the others look only at their own oldest entries.
local key, delayed, sweep, pause, mark = unpack(KEYS)
local group, member, max, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local page, pages, glance, many, rest, step = 100, 5, 5000, 20, 250, 1000
-- include lease
-- include count
-- include ids
-- include instance
-- include release
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local taken, bytes = {}, tonumber(ARGV[7])
local number, lost, high = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]

local function full() return #taken >= max or bytes <= 0 end

if mark then
  local _, mine = instanceOf(member)
  local latest = redis.call('GET', mark)
  if latest and latest ~= mine then
    release(key, delayed, group, member)
    return redis.error_reply('REPLACED by ' .. latest)
  end
  if not latest or tonumber(ARGV[11]) > 0 then
    redis.call('XPENDING', key, group) -- a deleted group gets no mark
    redis.pcall('SET', mark, mine, 'PX', ARGV[12])
  end
  for i = 13, #ARGV do release(key, delayed, group, ARGV[i]) end
end

if lost > 0 then
  local last = ARGV[6]
  local entries = redis.call('XPENDING', key, group, last == '' and '-' or '(' .. last, '+', page, member)
  local back, due = {}, {}
  for _, p in ipairs(entries) do
    last = p[1]
    if p[4] >= lost * base or less(high, last) then
      local count = p[4] % base - 1
      back[count] = back[count] or {}
      table.insert(back[count], last)
      table.insert(due, 0)
      table.insert(due, position(last))
    end
  end
  for count, ids in pairs(back) do
    for _, word in ipairs({'RETRYCOUNT', count, 'JUSTID'}) do table.insert(ids, word) end
    redis.call('XCLAIM', key, group, 'parked', 0, unpack(ids))
  end
  if #due > 0 then redis.call('ZADD', delayed, unpack(due)) end
  return {0, 0, tonumber(ARGV[5]), #entries == page and last or '', {}}
end

-- This read shows that the member is alive; before Redis 7.2, waiting for new entries does not. It asks for held
-- entries after the last possible ID but one, because the last one would mean new entries. It fails if the group
-- does not exist.
redis.call('XREADGROUP', 'GROUP', group, member, 'COUNT', 1, 'STREAMS', key, '18446744073709551615-18446744073709551614')

local paused = redis.call('GET', pause)
if paused then return redis.error_reply('PAUSED ' .. paused) end

-- sizeOf returns at least the bytes of a message. Fields of other programs grow when they are encoded.
local function sizeOf(fields)
  if #fields == 2 and fields[1] == 'event' then return #fields[2] end
  local size = 300
  for _, text in ipairs(fields) do size = size + 5 * (#text + 1) end
  return size
end

-- claim delivers one entry. It claims them one by one, because a body is in Lua before its size is known. An entry
-- that does not fit beside the others is given back, due at once and at the same attempt.
local function claim(id, count, idle)
  local counted = count % base + 1 + number * base
  local entry = redis.call('XCLAIM', key, group, member, idle, id, 'RETRYCOUNT', counted)[1]
  if entry then
    local size = sizeOf(entry[2])
    if #taken > 0 and size > bytes then
      redis.call('XCLAIM', key, group, 'parked', 0, id, 'RETRYCOUNT', count, 'JUSTID')
      redis.call('ZADD', delayed, 0, position(id))
      bytes = 0
      return false
    end
    taken[#taken + 1] = {id, counted, entry[2]}
    bytes = bytes - size
    return true
  end
  local p = redis.call('XPENDING', key, group, id, id, 1)[1]
  if not p or p[4] ~= count then
    redis.call('XACK', key, group, id)
    taken[#taken + 1] = {id, counted, false}
  end -- otherwise it was not claimed, because the server's clock has just been set back
  return true
end

local ripe = redis.call('ZRANGEBYSCORE', delayed, '(0', now, 'LIMIT', 0, step)
if #ripe > 0 then
  local scored = {}
  for i, id in ipairs(ripe) do scored[2 * i - 1], scored[2 * i] = 0, id end
  -- The ZREM comes first, because a server out of memory refuses a ZADD that is the first write of a script.
  redis.call('ZREM', delayed, unpack(ripe))
  redis.call('ZADD', delayed, unpack(scored))
end
if #ripe == step then return {0, 0, tonumber(ARGV[5]), ARGV[6], {}} end

local done = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', delayed, 0, 0, 'LIMIT', 0, max)) do
  if full() then break end
  local at = entryId(id)
  local p = redis.call('XPENDING', key, group, at, at, 1)[1]
  if p and p[2] == 'parked' and not claim(p[1], p[4], 0) then break end
  done[#done + 1] = id
end
if #done > 0 then redis.call('ZREM', delayed, unpack(done)) end

-- collect looks at count entries of owner after an ID, and delivers those with an expired lease. It returns the last
-- ID that it has looked at, or '' if it has reached the owner's last entry.
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

-- collectAll delivers the first entries of owner with an expired lease. The server itself looks at all entries.
local function collectAll(owner)
  local itsLease = leaseOf(owner, lease)
  for _, p in ipairs(redis.call('XPENDING', key, group, 'IDLE', itsLease, '-', '+', page, owner)) do
    if full() then return end
    claim(p[1], p[4], itsLease)
  end
end

local turn, after, wait = tonumber(ARGV[5]), ARGV[6], 1000
if not full() and redis.call('EXISTS', sweep) == 1 then
  collect(member, '', page)
  wait = rest
elseif not full() then
  local owners, held, delays = {}, {}, #taken
  for _, o in ipairs(redis.call('XPENDING', key, group)[4] or {}) do
    if o[1] ~= 'parked' then
      owners[#owners + 1] = o[1]
      held[#owners] = tonumber(o[2])
    end
  end
  for _, owner in ipairs(owners) do
    if full() then break end
    local before = #taken
    collect(owner, '', 1)
    if #taken > before then collect(owner, '', page) end
  end
  local seen, ended = 0, 0
  while seen < glance and ended < #owners and not full() do
    turn = turn % #owners
    local owner, count = owners[turn + 1], held[turn + 1]
    if count > glance then
      if seen > 0 then break end
      for _ = 1, pages do
        after = collect(owner, after, page)
        if after == '' or full() then break end
      end
      seen = glance
    elseif seen + count > glance then
      break
    else
      collectAll(owner)
      seen, after = seen + count, ''
    end
    if after == '' then turn, ended = turn + 1, ended + 1 end
  end
  -- A server out of memory may refuse the mark. Then every member looks at all owners.
  if #owners > many and #taken == delays then redis.pcall('SET', sweep, '', 'PX', rest) end
end

local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
local ends = 0
if #first > 0 and first[2] - now < wait then wait, ends = math.max(0, first[2] - now), 1 end
return {math.ceil(wait * 1000), ends, turn, after, taken}
