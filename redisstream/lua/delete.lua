-- delete 2: delete a group.
-- KEYS: the stream, the sorted set of delayed ids, the mark of a sweep, the turn of the group. ARGV: group.
-- Returns 1, or 0 if there is no such group.
local deleted = redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
return deleted
