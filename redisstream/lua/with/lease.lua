-- leaseOf returns the lease in milliseconds that the name of a member tells, or another for the
-- consumer of somebody else, such as worker-1.
local function leaseOf(name, other)
  return tonumber(string.match(name, '%-%d+%-[a-z2-7][a-z2-7][a-z2-7][a-z2-7][a-z2-7][a-z2-7][a-z2-7][a-z2-7]%-(%d+)$')) or other
end
