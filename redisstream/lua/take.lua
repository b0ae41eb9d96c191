-- take 4: hand out what comes back: what is due after a delay, then what was left behind.
-- KEYS: the stream, the delayed, the swept. ARGV: group, member, at most how many, the member's lease
--   in milliseconds, which owner to look through next, after which of its ids, after how many bytes
--   to hand out no more, the number of this take, the number of the first take whose reply was lost
--   or 0, the highest id that the member has received.
-- Returns {in how many microseconds to look again, a second at most, next owner, after which id,
--   {{id, count, fields, or nil if the body is gone}, …}}.
-- A member that has lost the reply of a read or a take has entries that it does not know of: those
-- with higher ids than it has received, and those with the number of a lost take. A run gives back
-- some of them, due at once and at the same attempt, and hands out nothing until all are given back.
-- The sorted set has two parts. Ids with a later score are not due. Ids with score 0 are due, and
-- Redis keeps equal scores in the order of the ids, which is the order of positions. So a run first
-- gives score 0 to every id that has fallen due, and then hands out the lowest. One run moves a
-- bounded number of ids. If more may have fallen due it hands out nothing and asks for another run.
-- An owner is one of the group's consumers. Its name ends in its lease, and nothing is taken
-- from it earlier. Of each owner the oldest entry is looked at, which is enough if it died;
-- and some pages, of one owner after another, for what was lost without dying. Where there are many
-- owners that takes a while, and every member would do it: then one does it for all and leaves a mark
-- of when, and the others look at what is their own.
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

-- claim takes one entry. A body comes into Lua before its size is known: so each comes alone.
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

-- collect takes what owner has left, of so many entries after an id. It returns the last id
-- that it has looked at, or '' at the owner's end.
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
  -- Out of memory the server refuses it: then everybody looks.
  if #owners > many and #taken == delays then redis.pcall('ZADD', swept, now, 'at') end
end

local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
if #first > 0 then wait = math.min(wait, math.max(0, first[2] - now)) end
return {math.ceil(wait * 1000), turn, after, taken}
