-- take 2: hand out what comes back: what is due after a delay, then what was left behind.
-- KEYS: the stream, the delayed, the swept. ARGV: group, member, at most how many, the member's lease
--   in milliseconds, which owner to look through next, after which of its ids.
-- Returns {in how many microseconds to look again, a second at most, next owner, after which id,
--   {{id, attempt, fields, or nil if the body is gone}, …}}.
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
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local taken = {}

local function claim(ids, counts, idle)
  if #ids == 0 then return end
  local fields = {}
  for _, entry in ipairs(redis.call('XCLAIM', key, group, member, idle, unpack(ids))) do
    if entry then fields[entry[1]] = entry[2] end
  end
  for i, id in ipairs(ids) do
    if fields[id] then
      taken[#taken + 1] = {id, counts[i] + 1, fields[id]}
    else
      local p = redis.call('XPENDING', key, group, id, id, 1)[1]
      if not p or p[4] > counts[i] then
        redis.call('XACK', key, group, id)
        taken[#taken + 1] = {id, counts[i] + 1, false}
      end -- else it was not claimed: the server's clock was set back just now
    end
  end
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

local due = redis.call('ZRANGEBYSCORE', delayed, 0, 0, 'LIMIT', 0, max)
if #due > 0 then
  local ids, counts = {}, {}
  for _, id in ipairs(due) do
    local p = redis.call('XPENDING', key, group, id, id, 1)[1]
    if p and p[2] == 'parked' then
      ids[#ids + 1], counts[#counts + 1] = p[1], p[4]
    end
  end
  claim(ids, counts, 0)
  redis.call('ZREM', delayed, unpack(due))
end

-- collect takes what owner has left, of so many entries after an id. It returns the last id
-- that it has looked at, or '' at the owner's end.
local function collect(owner, after, count)
  local itsLease = tonumber(string.match(owner, '%-(%d+)$')) or lease
  local entries = redis.call('XPENDING', key, group, after == '' and '-' or '(' .. after, '+', count, owner)
  local ids, counts, last = {}, {}, ''
  for _, p in ipairs(entries) do
    if #taken + #ids >= max then
      claim(ids, counts, itsLease)
      return last
    end
    if p[3] >= itsLease then
      ids[#ids + 1], counts[#counts + 1] = p[1], p[4]
    end
    last = p[1]
  end
  claim(ids, counts, itsLease)
  return #entries == count and last or ''
end

local turn, after, wait = tonumber(ARGV[5]), ARGV[6], 1000
if #taken < max and #redis.call('ZRANGEBYSCORE', swept, now - rest, now) > 0 then
  collect(member, '', page)
  wait = rest
elseif #taken < max then
  local owners, delays = {}, #taken
  for _, o in ipairs(redis.call('XPENDING', key, group)[4] or {}) do
    if o[1] ~= 'parked' then owners[#owners + 1] = o[1] end
  end
  for _, owner in ipairs(owners) do
    if #taken >= max then break end
    local before = #taken
    collect(owner, '', 1)
    if #taken > before then collect(owner, '', page) end
  end
  local ended = 0
  for _ = 1, pages do
    if #taken >= max or ended >= #owners then break end
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
