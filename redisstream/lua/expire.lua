-- expire 1: delete an ephemeral group if none of its members has been heard of.
-- KEYS: see destroy. ARGV: group, a member, 1 if that member leaves.
-- Returns for how many milliseconds the member still counts as heard of, or 0 if it is no longer a member.
-- A member counts as heard of for ten leases after Attach, Maintain (see heartbeat), or a command in its name. A
-- member that leaves keeps its consumer while that holds entries, because Redis would forget them together with
-- the consumer.
local key, members = KEYS[1], KEYS[6]
local group, member = ARGV[1], ARGV[2]
-- include ids
-- include lease
-- include now
-- include destroy
if redis.call('EXISTS', members) == 0 then return 0 end -- or the group is not ephemeral
local consumers = redis.pcall('XINFO', 'CONSUMERS', key, group)
if consumers.err then
  if string.find(consumers.err, 'NOGROUP', 1, true) or string.find(consumers.err, 'no such key', 1, true) then
    redis.call('DEL', members) -- another program has deleted the stream or the group
    return 0
  end
  return consumers
end
if ARGV[3] == '1' then
  redis.call('ZREM', members, member)
  if #redis.call('XPENDING', key, group, '-', '+', 1, member) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', key, group, member)
  end
end
local idle, lives, stays = {}, false, 0
for _, c in ipairs(consumers) do idle[field(c, 'name')] = field(c, 'idle') end
local heard = redis.call('ZRANGE', members, 0, -1, 'WITHSCORES')
for i = 1, #heard, 2 do
  local name, left = heard[i], heard[i + 1] - now
  if idle[name] then left = math.max(left, 10 * leaseOf(name, 0) - idle[name]) end
  if left <= 0 then redis.call('ZREM', members, name) else lives = true end
  if name == member then stays = math.max(left, 0) end
end
if not lives then destroy(KEYS, group) end
return stays
