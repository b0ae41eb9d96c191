-- delete 3: delete a group.
-- KEYS: see destroy. ARGV: group.
-- Returns 1, or 0 if there is no such group.
-- include destroy
return destroy(KEYS, ARGV[1])
