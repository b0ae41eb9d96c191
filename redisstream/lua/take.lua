-- take 1: hand out what comes back: what is due after a delay, then what was left behind.
-- KEYS: the stream, the delayed, the swept. ARGV: group, member, at most how many, the member's lease
--   in milliseconds, which owner to look through next, after which of its ids.
-- Returns {in how many milliseconds to look again, or -1 if nothing asks for it, next owner, after which id,
--   {{id, attempt, fields, or nil if the body is gone}, …}}.
-- An owner is one of the group's consumers. Its name ends in its lease, and nothing is taken
-- from it earlier. Of each owner the oldest entry is looked at, which is enough if it died;
-- and some pages, of one owner after another, for what was lost without dying. Where there are many
-- owners that takes a while, and every member would do it: then one does it for all and leaves a mark
-- of when, and the others look at what is their own.
local key, delayed, swept = KEYS[1], KEYS[2], KEYS[3]
local group, member, max, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local page, pages, many, rest = 200, 5, 20, 250
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
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

local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, max)
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

local turn, after, wait = tonumber(ARGV[5]), ARGV[6], -1
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
if #first > 0 then
  local due = math.max(0, first[2] - now)
  if wait < 0 or due < wait then wait = due end
end
return {wait, turn, after, taken}
