-- The server's delivery count of an entry is its attempt, plus base times the number of the run of take.lua that
-- delivered it. Each run of a member has its own number, so a member never holds an entry twice with the same
-- count, even though a refund takes the attempt back.
local base = 1000000
