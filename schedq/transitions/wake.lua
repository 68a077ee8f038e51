--[[
Set the wake marker again, for a client that took it and does not claim.

KEYS  pending (list), wake (zset), paused (string), asleep (hash), leases (zset), paused_tasks (hash), held (zset), lanes (hash),
      wake_held (zset), open_gates (zset)
ARGV  jobs, clock, wakes
Returns  1 if jobs wait, else 0
]]
--@include clock
--@include checks
--@include numbers
--@include wake
--@include wake_lane
--@include task_of
--@include lanes
--@include paused_tasks
--@include open_lanes
local bad = wrong_type('list', pending) or wrong_type('zset', leases)
if bad then return bad end

local waits, waiting_lanes = redis.call('LLEN', pending) > 0 or redis.call('EXISTS', open_gates) == 1, ready_lanes()
if not waits and #waiting_lanes == 0 then return 0 end
allow_when_full(leases)
if waits then set_wake() end
for _, lane in ipairs(waiting_lanes) do wake_lane(lane.task) end
return 1
