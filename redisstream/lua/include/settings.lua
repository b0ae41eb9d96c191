-- settingOf returns a number in the settings of a topic, or other if they do not have it.
local function settingOf(settings, name, other)
  return tonumber(string.match(redis.call('GET', settings) or '', name .. '=(%d+)')) or other
end
