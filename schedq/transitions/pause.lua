--[[
Stop all claims of a queue; running jobs continue.

KEYS  paused (string), wake (zset), log (stream)
ARGV  clock, log_size
Returns  since when the queue is paused, ms
]]
--@include clock
--@include numbers
--@include log
redis.call('DEL', wake)
local since = redis.pcall('GET', paused)
if type(since) == 'string' then return whole(since) end
redis.call('SET', paused, now)
write_log('pause', '', 0)
return now
