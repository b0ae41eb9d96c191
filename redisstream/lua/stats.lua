-- stats 2: count the messages and members of a group at one moment.
-- KEYS: the stream, the count of trimmed entries. ARGV: group, the lease in milliseconds of consumers whose names
--   have none.
-- Returns {entries, lag or -1, pending, parked, members, lowest ID that is not settled or ''}, or the error NOGROUP.
-- The lag is certain if the group is at the end or the start of the stream. Elsewhere it is certain only if Redis
-- counts entries (since 7) and nobody but Maintain has removed any.
local key, group = KEYS[1], ARGV[1]
-- include ids
-- include lease
local g
for _, each in ipairs(redis.call('XINFO', 'GROUPS', key)) do
  if field(each, 'name') == group then g = each end
end
if not g then return redis.error_reply('NOGROUP no such group') end

local info = redis.call('XINFO', 'STREAM', key)
local length, delivered = field(info, 'length'), field(g, 'last-delivered-id')
local added, read = field(info, 'entries-added'), field(g, 'entries-read')
local first = field(info, 'first-entry')
local lag = -1
if length == 0 or not less(delivered, field(info, 'last-generated-id')) then
  lag = 0
elseif less(delivered, first[1]) then
  lag = length
elseif added and read and added - length == tonumber(redis.call('GET', KEYS[2]) or 0) then
  lag = added - read
end

local parked, oldest = 0, ''
local pending = redis.call('XPENDING', key, group)
if pending[1] > 0 then
  oldest = pending[2]
  for _, o in ipairs(pending[4]) do
    if o[1] == 'parked' then parked = tonumber(o[2]) end
  end
elseif lag ~= 0 then
  local unread = redis.call('XRANGE', key, '(' .. delivered, '+', 'COUNT', 1)
  if unread[1] then oldest = unread[1][1] end
end

local members = 0
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
  if field(c, 'name') ~= 'parked' and field(c, 'idle') <= leaseOf(field(c, 'name'), tonumber(ARGV[2])) then members = members + 1 end
end
return {length, lag, pending[1], parked, members, oldest}
