-- A lease that ended at 0 marks a job on its way from place to place: should an error end the script, the reclaimer
-- finds it by that and puts it where its status says.
local function mark(id) redis.call('ZADD', leases, 0, id) end
local function unmark(...) redis.call('ZREM', leases, ...) end
