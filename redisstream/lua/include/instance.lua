-- instanceOf returns the instance and the incarnation at the beginning of a member's name, or nil.
local function instanceOf(name)
  return string.match(name, '^([^~]+)~([^~]+)~')
end
