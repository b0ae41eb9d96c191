-- declare 1: store the settings of a topic.
-- KEYS: the stream, the settings. ARGV: the text of the settings or '', 1 to replace existing settings.
-- Returns the text that now applies. A stream that does not exist is made by creating a group and deleting it.
local key, settings, text = KEYS[1], KEYS[2], ARGV[1]
local now = redis.call('GET', settings) or ''
if redis.call('EXISTS', key) == 0 then
  redis.call('XGROUP', 'CREATE', key, 'declare', '$', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', key, 'declare')
end
if now ~= '' and ARGV[2] ~= '1' or now == text then return now end
if text == '' then redis.call('DEL', settings) else redis.call('SET', settings, text) end
return text
