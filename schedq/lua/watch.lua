--[[
How a job stands; while it is not finished its end will be told on a channel.

KEYS  1 leases (zset)
ARGV  1 jobs prefix  2 id  3 channel
Returns  {} if nothing is stored, else {status, result, result error, last error}
]]
local leases = KEYS[1]
local jobs, id, channel = ARGV[1], ARGV[2], ARGV[3]
--@include _guard
--@include _job
local bad = misfit('zset', leases)
if bad then return bad end

local job = read_job(id, 'status', 'payload', 'result', 'result_error', 'last_error', 'waiter', 'tombstone')
if not job or job[7] then return {} end
if not FINISHED[job[1]] and job[6] ~= channel then
  open_memory(leases)
  redis.call('HSET', jobs .. id, 'waiter', channel)
end
return {job[1] or '', job[3] or '', job[4] or '', job[5] or ''}
