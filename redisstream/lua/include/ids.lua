-- field returns the value of a name in a reply of XINFO. less compares IDs, with or without leading zeros. position
-- adds the leading zeros to an ID, or a letter if the ID is long. entryId removes the letter.
local function field(list, name)
  for i = 1, #list, 2 do
    if list[i] == name then return list[i + 1] end
  end
end
local function less(a, b)
  local function parts(id)
    local ms, serial = string.match(id, '^0*(%d*)%-0*(%d*)$')
    return {#ms, ms, #serial, serial}
  end
  a, b = parts(a), parts(b)
  for i = 1, 4 do
    if a[i] ~= b[i] then return a[i] < b[i] end
  end
  return false
end
local function position(id)
  local ms, serial = string.match(id, '^(%d+)%-(%d+)$')
  local more = #ms - 14
  local first = more > 0 and string.sub('abcdef', more, more) or string.rep('0', -more)
  return first .. ms .. '-' .. string.rep('0', 20 - #serial) .. serial
end
local function entryId(position)
  return string.match(position, '%d.*')
end
