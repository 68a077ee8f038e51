--[[
Delete the record of a group, a page at a time. Its children are jobs like any others from then on.

KEYS  groups (zset), pending (list), delayed (zset), stats (hash), wake (zset), paused (string), asleep (hash)
ARGV  jobs, clock, group_keys
      name: of the group
      before (number): only a group that began by then, ms; '' for any
      stand_ins (flag): whether to delete one that stands for a group of another queue, too. Otherwise the promoter looks at it next
Returns  gone | more (send it again) | kept (it began later, or stands for another one)
]]
--@include clock
--@include checks
--@include numbers
--@include totals
--@include wake
--@include wake_run
--@include group_delete
local key = group_keys .. name
local bad = wrong_type('zset', groups, delayed) or wrong_type('list', pending) or wrong_type('hash', key)
if bad then return bad end
local found = redis.call('HMGET', key, 'began_at_ms', 'stands_for')
local began = whole(found[1])
if before and began > before and began <= now then return 'kept' end
if found[2] and not stand_ins then
  redis.call('ZADD', groups, 'XX', 0, name)
  return 'kept'
end
allow_when_full(groups)
local is_gone = delete_group(name)
if has_woken then set_wake() end
return is_gone and 'gone' or 'more'
