--[[
Put the wake marker back, for who took it and makes no claim.

KEYS  1 pending (list)  2 wake (zset)  3 paused (string)  4 leases (zset)
ARGV  none
Returns  1 if jobs wait, else 0
]]
local pending, wake, paused, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
--@include _guard
--@include _wake
local bad = misfit('list', pending) or misfit('zset', leases)
if bad then return bad end

if redis.call('LLEN', pending) == 0 then return 0 end
open_memory(leases)
set_wake()
return 1
