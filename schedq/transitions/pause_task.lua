--[[
Pause one task: no claim takes its jobs; running jobs continue.

KEYS  paused_tasks (hash), log (stream)
ARGV  clock, log_size
      task: its name
Returns  since when it is paused, ms
]]
--@include clock
--@include checks
--@include numbers
--@include log
local bad = wrong_type('hash', paused_tasks)
if bad then return bad end

redis.call('HDEL', paused_tasks, '')  -- a removal comes first, so that a full Redis can pause, too
local since = redis.call('HGET', paused_tasks, task)
if since then return whole(since) end
redis.call('HSET', paused_tasks, task, stamp)
write_log('pause', '', 0, 'task ' .. task)
return now
