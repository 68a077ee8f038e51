--[[
Wake the runs that wait for these groups of another queue. A run that is not suspended is left alone.

KEYS  pending (list), delayed (zset), stats (hash), wake (zset), paused (string), asleep (hash)
ARGV  jobs, clock, group_keys
      names...: of the groups, which are those of their stand-ins, too
Returns  how many runs were woken
]]
--@include clock
--@include checks
--@include numbers
--@include totals
--@include wake
--@include wake_run
local bad = wrong_type('zset', delayed) or wrong_type('list', pending)
if bad then return bad end
allow_when_full(delayed)
local count = 0
for i = names_start, #ARGV do
  local key = group_keys .. ARGV[i]
  local run = redis.pcall('HGET', key, 'wake')  -- damage of one must not keep the others waiting
  if type(run) == 'string' and wake_run(run) then count = count + 1 end
end
if count > 0 then set_wake() end
return count
