--[[
Allow claims again, and wake a worker.

KEYS  paused (string), asleep (hash), pending (list), wake (zset), log (stream)
ARGV  clock, log_size
Returns  1 if the queue was paused, else 0
]]
--@include clock
--@include checks
--@include wake
--@include log
local bad = wrong_type('list', pending)
if bad then return bad end

local was = redis.call('DEL', paused)
-- Even if `pending` is empty: jobs may have become due during the pause.
if was == 1 or redis.call('LLEN', pending) > 0 then set_wake() end
if was == 1 then write_log('resume', '', 0) end
return was
