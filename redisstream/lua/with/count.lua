-- The server's delivery count of an entry is its attempt plus base times the number of the run of
-- take.lua that delivered it. Each run of a member has its own number. So a member never holds an entry
-- twice with the same count, although a refund takes the attempt back.
local base = 1000000
