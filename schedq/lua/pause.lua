--[[
Stop claims; what runs, runs on.

KEYS  1 paused (string)  2 wake (zset)  3 stats (hash)  4 log (stream)
ARGV  1 jobs prefix  2 clock  3 events channel  4 log size
Returns  since when the queue is paused, ms
]]
local paused, wake, stats, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local jobs, clock, events, log_size = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include _clock
--@include _job
--@include _tally
--@include _tell
redis.call('DEL', wake)
local since = redis.pcall('GET', paused)
if type(since) == 'string' then return whole(since) end
redis.call('SET', paused, now)
to_log('pause', '', 0)
return now
