-- startOf returns after which ID a group begins: 0, $ or an ID. start is one of these, or @ and a time in milliseconds.
-- last is the last ID of the stream. The second result is an error, or nil.
local function startOf(start, last)
  local ms = tonumber(string.match(start, '^@(%d+)$'))
  if ms then
    if ms == 0 then return '0' end
    start = string.format('%.0f-18446744073709551615', ms - 1)
    return less(last, start) and '$' or start
  end
  if start ~= '0' and start ~= '$' and less(last, start) then
    return start, redis.error_reply('BEYOND the end of the stream, ' .. last)
  end
  return start
end
