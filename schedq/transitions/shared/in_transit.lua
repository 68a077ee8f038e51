-- A lease that ended at 0 marks a job on its way from place to place: should an error end the script, the reclaimer
-- finds it by that and puts it where its status says.
local function mark_in_transit(id) redis.call('ZADD', leases, 0, id) end
local function unmark_in_transit(...) redis.call('ZREM', leases, ...) end
