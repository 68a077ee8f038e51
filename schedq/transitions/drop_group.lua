--[[
Delete the record of a group, a page at a time. Its children are jobs like any others from then on.

KEYS  groups (zset), pending (list), delayed (zset), stats (hash), wake (zset), paused (string)
ARGV  jobs, clock, group_keys
      name: of the group
      before (number): only a group that began by then, ms; '' for any
Returns  gone | more (send it again) | kept (it began later)
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
local began = whole(redis.call('HGET', key, 'began_at_ms'))
if before and began > before and began <= now then return 'kept' end
allow_when_full(groups)
local is_gone = delete_group(name)
if has_woken then set_wake() end
return is_gone and 'gone' or 'more'
