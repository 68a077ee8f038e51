--[[
Delete the record of a group, a page at a time. Its children are jobs like any others from then on.

KEYS  groups (zset)
ARGV  clock, group_keys
      name: of the group
      before (number): only a group that began by then, ms; '' for any
Returns  gone | more (send it again) | kept (it began later)
]]
--@include clock
--@include checks
--@include numbers
--@include group_delete
local key = group_keys .. name
local bad = wrong_type('zset', groups) or wrong_type('hash', key)
if bad then return bad end
local began = whole(redis.call('HGET', key, 'began_at_ms'))
if before and began > before and began <= now then return 'kept' end
allow_when_full(groups)
return delete_group(name) and 'gone' or 'more'
