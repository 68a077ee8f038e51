--[[
Count a failed try of a step, and fix when the next one begins, for the worker that holds the job.

KEYS  leases (zset)
ARGV  jobs, clock, id, token
      begins: `run` as it is if nothing was recorded before
      name: the step
      number (number): of this request for the step, from 1; one that was carried out before changes nothing
      counts (flag): the try counts; it does not if the step asked to be put off
      delay (number): ms until the next one
      error: in short
Returns  {OK, 1 if the job was asked to stop, else 0, tries, instant of the next one} | {LOST}
]]
local LAST_INSTANT = 253402300799999
--@include clock
--@include checks
--@include numbers
--@include run
local job = held_run(id, token, 'tries:' .. name)
if not job then return {'LOST'} end
local tries, at, last = string.match(job[6] or '', '^(%d+) (%d+) (%d+)')
if whole(last) < number then
  tries, at = digits(whole(tries) + (counts and 1 or 0)), digits(math.min(now + delay, LAST_INSTANT))
  allow_when_full(leases)
  redis.call('HSET', jobs .. id, 'tries:' .. name, tries .. ' ' .. at .. ' ' .. digits(number) .. ' ' .. error, 'run',
    with_number(job[4] or begins, 'tried', 1))
end
return {'OK', job[3] and 1 or 0, tries, at}
