--[[
Allow claims again, and let a worker look.

KEYS  1 paused (string)  2 pending (list)  3 wake (zset)  4 stats (hash)  5 log (stream)
ARGV  1 jobs prefix  2 clock  3 events channel  4 log size
Returns  1 if the queue was paused, else 0
]]
local paused, pending, wake, stats, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local jobs, clock, events, log_size = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include _clock
--@include _guard
--@include _job
--@include _tally
--@include _wake
--@include _tell
local bad = misfit('list', pending)
if bad then return bad end

local was = redis.call('DEL', paused)
-- Not only when `pending` holds jobs: some may have become due meanwhile.
if was == 1 or redis.call('LLEN', pending) > 0 then set_wake() end
if was == 1 then to_log('resume', '', 0) end
return was
