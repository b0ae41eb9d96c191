-- now is the time of the server in whole milliseconds.
local clock = redis.call('TIME')
local now = math.floor(clock[1] * 1000 + clock[2] / 1000)
