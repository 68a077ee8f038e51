-- A lease that ended at 0 marks a job that is being moved. If an error ends the script in between, the reclaimer finds
-- the job by this lease and puts it where its status says.
local function mark_in_transit(id) redis.call('ZADD', leases, 0, id) end
local function unmark_in_transit(...) redis.call('ZREM', leases, ...) end
