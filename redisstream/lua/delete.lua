-- delete 3: delete a group.
-- KEYS: see gone. ARGV: group.
-- Returns 1, or 0 if there is no such group.
-- with gone
return gone(KEYS, ARGV[1])
