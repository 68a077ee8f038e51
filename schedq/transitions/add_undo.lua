--[[
Store the call that undoes a step, before the step begins, unless that is stored already, for the worker that holds the job.

The run is listed in `undos`, so that an end of which no script of this release knows is found; see reclaim.lua.

KEYS  leases (zset), undos (zset)
ARGV  jobs, clock, id, token
      begins: `run` as it is if nothing was recorded before
      name: the step
      call: JSON, as a payload
Returns  {OK | EXISTS, 1 if the job was asked to stop, else 0, `run`, what is stored: a number and the call} | {FULL} | {LOST}
]]
local AUDIT_MS = 30000
--@include clock
--@include checks
--@include numbers
--@include run
--@include undo
local job = held_run(id, token, 'undo:' .. name)
if not job then return {'LOST'} end
local stops, run = job[3] and 1 or 0, job[4] or begins
if job[6] then return {'EXISTS', stops, run, job[6]} end
local open, number = open_undos(run), number_in(run, 'made') + 1
local stored = digits(number) .. ' ' .. call
if number_in(run, 'steps') + open + 1 >= MOST_MEMOS or number_in(run, 'bytes') + #stored > MOST_RECORD then return {'FULL'} end
run = with_number(with_number(run, 'made', number), 'bytes', number_in(run, 'bytes') + #stored)
run = with_number(run, 'undos', open + 1)
allow_when_full(leases)
redis.call('ZADD', undos, now + AUDIT_MS, id)
redis.call('HSET', jobs .. id, 'undo:' .. name, stored, 'run', run)
return {'OK', stops, run, stored}
