-- declare 1: store the settings of a topic.
-- KEYS: the stream, the settings. ARGV: a text of settings or '', 1 to replace other settings.
-- Returns the text in force. If the stream does not exist, a group that is deleted at once makes it.
local key, settings, text = KEYS[1], KEYS[2], ARGV[1]
local now = redis.call('GET', settings) or ''
if redis.call('EXISTS', key) == 0 then
  redis.call('XGROUP', 'CREATE', key, 'declare', '$', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', key, 'declare')
end
if now ~= '' and ARGV[2] ~= '1' or now == text then return now end
if text == '' then redis.call('DEL', settings) else redis.call('SET', settings, text) end
return text
