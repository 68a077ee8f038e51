--[[
Read the status of a job; if it has not finished, its end will be published on a channel.

KEYS  leases (zset)
ARGV  jobs
      id: the job
      channel: where its end will be published
Returns  {} if nothing is stored, else {status, result, result error, last error, why it was cancelled}
]]
--@include checks
--@include job
local bad = wrong_type('zset', leases)
if bad then return bad end

local job = read_job(id, 'status', 'payload', 'result', 'result_error', 'last_error', 'waiter', 'tombstone', 'cancel_reason')
if not job or job[7] then return {} end
if not FINISHED[job[1]] and job[6] ~= channel then
  allow_when_full(leases)
  redis.call('HSET', jobs .. id, 'waiter', channel)
end
return {job[1] or '', job[3] or '', job[4] or '', job[5] or '', job[8] or ''}
