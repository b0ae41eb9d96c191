-- leaseOf returns the lease in milliseconds at the end of a member's name. For a consumer of another program, such as
-- worker-1, it returns other.
local function leaseOf(name, other)
  return tonumber(string.match(name, '%-%d+%-[a-z2-7][a-z2-7][a-z2-7][a-z2-7][a-z2-7][a-z2-7][a-z2-7][a-z2-7]%-(%d+)$')) or other
end
