-- attach 5: add a member to a group, which is created if it does not exist.
-- KEYS: the stream, the count of trimmed entries, the mark of a young stream, the members and the instances of
--   an ephemeral group; if the member belongs to an instance, also the sorted set of delayed IDs and the mark of
--   the instance. ARGV: group, member, the start of a new group (see startOf), for how many milliseconds a
--   stream is young, ten leases in milliseconds or 0 if the group is not ephemeral, for how long the mark lives.
-- Returns {1 if the script must run again, the members of earlier incarnations of the instance, …}, or the error
--   BEYOND if the start is after the stream's last ID, or KIND if the group exists but is of the other kind
--   (ephemeral or not). A run gives back about 500 entries of such members, so that other clients do not wait
--   for long.
-- A group that begins at the end gets ENTRIESREAD, the number of entries before it, from which Redis 7 knows
-- its lag.
-- A new group makes a stream young that Maintain has never trimmed: the server may have lost its data, and other
-- groups may still come back. If the stream still has every entry that was ever added to it (Redis 7 counts them),
-- the count of trimmed entries belongs to an earlier stream and is deleted. Ephemeral groups come and go, so an
-- ephemeral group makes a stream young only if it is the stream's first group.
local key, trimmed, young, members, instances = unpack(KEYS)
local group, member, start = ARGV[1], ARGV[2], ARGV[3]
-- include count
-- include ids
-- include instance
-- include release
-- include start
-- include now
-- include members
local exists = redis.call('EXISTS', key) == 1
local known, groups = false, {}
if exists then
  groups = redis.call('XINFO', 'GROUPS', key)
  for _, g in ipairs(groups) do
    if field(g, 'name') == group then known = true end
  end
end
local heard = tonumber(ARGV[5])
local lasts = heard == 0
if known and lasts == (redis.call('EXISTS', members) == 1) then
  return redis.error_reply('KIND the group exists and is ' .. (lasts and 'ephemeral' or 'not ephemeral'))
end
local added, length
if not known then
  local read
  local info = exists and redis.call('XINFO', 'STREAM', key)
  added = exists and field(info, 'entries-added') or (not exists and 0)
  length = exists and field(info, 'length') or 0
  local last, err = exists and field(info, 'last-generated-id') or '0-0'
  start, err = startOf(start, last)
  if err then return err end
  if start == '$' then
    start, read = last, added
  elseif start ~= '0' and not less(start, last) then
    read = added
  end
  local made
  if read and tonumber(read) > 0 then
    made = redis.pcall('XGROUP', 'CREATE', key, group, start, 'MKSTREAM', 'ENTRIESREAD', read)
  else
    made = redis.pcall('XGROUP', 'CREATE', key, group, start, 'MKSTREAM')
  end
  if made.err then return made end
end
-- A server out of memory refuses CREATECONSUMER only as the first write of a script, hence the DELCONSUMER
-- before it. Attaching must succeed, because members free memory by settling.
redis.call('XGROUP', 'DELCONSUMER', key, group, member)
redis.call('XGROUP', 'CREATECONSUMER', key, group, member)
if not known then
  if added == length then redis.call('DEL', trimmed) end
  -- A server out of memory may refuse this SET.
  if tonumber(ARGV[4]) > 0 and (lasts or #groups == 0) and redis.call('EXISTS', trimmed) == 0 then
    redis.pcall('SET', young, '', 'PX', ARGV[4])
  end
  -- These are left from a group whose stream was lost.
  if redis.call('EXISTS', members, instances) > 0 then redis.call('DEL', members, instances) end
end
if not lasts then heartbeat(members, instances, member, heard) end
local replaced = {0}
if KEYS[7] then
  local instance, incarnation = instanceOf(member)
  redis.call('SET', KEYS[7], incarnation, 'PX', ARGV[6])
  if not lasts then
    for _, name in ipairs(redis.call('ZRANGE', members, 0, -1)) do
      local its, other = instanceOf(name)
      if its == instance and other ~= incarnation then redis.call('ZREM', members, name) end
    end
  end
  local room = 500
  for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
    local name = field(c, 'name')
    local its, other = instanceOf(name)
    if its == instance and other ~= incarnation then
      replaced[#replaced + 1] = name
      if room > 0 then room = room - release(key, KEYS[6], group, name) end
      if #redis.call('XPENDING', key, group, '-', '+', 1, name) == 0 then
        redis.call('XGROUP', 'DELCONSUMER', key, group, name)
      else
        replaced[1] = 1
      end
    end
  end
end
return replaced
