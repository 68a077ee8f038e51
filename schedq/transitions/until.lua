--[[
Fix until when an operation of a run waits, unless that is fixed already, for the worker that holds the job.

KEYS  leases (zset)
ARGV  jobs, clock, id, token
      begins: `run` as it is if nothing was recorded before
      name: the operation
      mode: 'in' | 'at'
      ms (number): from now, or since the epoch
Returns  {OK, 1 if the job was asked to stop, else 0, the instant, now} | {LOST}
]]
local LAST_INSTANT = 253402300799999
--@include clock
--@include checks
--@include numbers
--@include run
local job = held_run(id, token, 'until:' .. name)
if not job then return {'LOST'} end
local at = string.match(job[6] or '', '^%d+')
if not at then
  at = digits(math.min(mode == 'in' and now + ms or ms, LAST_INSTANT))
  allow_when_full(leases)
  redis.call('HSET', jobs .. id, 'until:' .. name, at .. ' ' .. stamp, 'run', job[4] or begins)
end
return {'OK', job[3] and 1 or 0, at, stamp}
