--[[
Begin a run again with other arguments, for the worker that holds the job: without memos, with its boxes and its version.

The record is marked as void in the write that stores the arguments. If the script is cut short after it, whoever reads the
mark sends this again, before anything else.

KEYS  leases (zset)
ARGV  jobs, clock, id, token
      begins: `run` as it is if nothing was recorded before
      life (number): which beginning this is, from 1; one that is made already is only finished
      args: JSON
Returns  {OK, 1 if the job was asked to stop, else 0, `run`} | {LOST}
]]
--@include clock
--@include checks
--@include numbers
--@include run
local job = held_run(id, token)
if not job then return {'LOST'} end
local key, run = jobs .. id, job[4] or begins
local is_void = number_in(run, 'void') == 1
allow_when_full(leases)
if number_in(run, 'life') < life then
  for _, name in ipairs({'steps', 'bytes', 'large', 'errors'}) do run = with_number(run, name, 0) end
  run = with_number(with_number(with_number(run, 'life', life), 'began', now), 'void', 1)
  local span = number_in(run, 'timeout')
  if span > 0 then run = with_number(run, 'deadline', now + span) end
  redis.call('HSET', key, 'run', run, 'args', args, 'attempts', '1')
  redis.call('HDEL', key, 'crashes', 'released')
  is_void = true
end
if is_void then
  local old = {}
  local fields = redis.call('HGETALL', jobs .. id)
  for n = 1, #fields, 2 do
    local kind = string.match(fields[n], '^(%l+):')
    if kind == 'step' or kind == 'until' or kind == 'tries' or kind == 'undo' then old[#old + 1] = fields[n] end
  end
  for n = 1, #old, 1000 do redis.call('HDEL', key, unpack(old, n, math.min(n + 999, #old))) end
  run = with_number(run, 'void', 0)
  redis.call('HSET', key, 'run', run)
end
return {'OK', job[3] and 1 or 0, run}
