--[[
Set the wake marker again, for a client that took it and does not claim.

KEYS  pending (list), wake (zset), paused (string), leases (zset), paused_tasks (hash), held (zset), lanes (hash)
ARGV  jobs
Returns  1 if jobs wait, else 0
]]
--@include checks
--@include numbers
--@include wake
--@include task_of
--@include lanes
--@include open_lanes
local bad = wrong_type('list', pending) or wrong_type('zset', leases)
if bad then return bad end

if redis.call('LLEN', pending) == 0 and not ready_lane() then return 0 end
allow_when_full(leases)
set_wake()
return 1
