-- now is the server's time in whole milliseconds.
local clock = redis.call('TIME')
local now = math.floor(clock[1] * 1000 + clock[2] / 1000)
