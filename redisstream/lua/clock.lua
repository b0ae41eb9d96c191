-- clock 1: return the time of the server that has a stream.
-- KEYS: the stream.
-- Returns the seconds since 1970 and the microseconds of the second.
return redis.call('TIME')
