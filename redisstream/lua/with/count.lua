-- The server's delivery count of an entry is its attempt and, above base, the number of the take that
-- handed it out. Each take of a member has another number. So a member never holds an entry a second
-- time with the same count, although a refund takes the attempt back.
local base = 1000000
