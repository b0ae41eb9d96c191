-- An ephemeral group has a sorted set of its open members, by the time until which they count as heard of, and one of
-- their instances. heartbeat records that a member counts as heard of for a number of milliseconds from now. The ZREM
-- comes before the ZADD, because a server out of memory refuses a ZADD that is the first write of a script.
local function heartbeat(members, instances, member, ms)
  redis.call('ZREM', members, member)
  redis.call('ZADD', members, string.format('%.0f', now + ms), member)
  local instance = instanceOf(member)
  if instance then redis.call('ZADD', instances, 0, instance) end
end
