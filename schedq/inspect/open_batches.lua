--[[
Look at the batches and chains that have not ended, a page of them: how many children wait and are jobs, and how long the one
has made no progress that has made none for longest. One that stands for a batch of another queue is none here.

The instants of those that have ended lie further ahead than those of others, until shortly before they are deleted.

KEYS  groups (zset)
ARGV  clock, group_keys
Returns  {how many there are at most, how many were looked at and are open, children that are not jobs yet, children that are
         jobs, the longest time without progress in ms}
]]
local MOST_LOOKED_AT, LOOK_AGAIN = 200, 10000
--@include clock
--@include checks
--@include numbers
local bad = wrong_type('zset', groups)
if bad then return bad end

local last = digits(now + 2 * LOOK_AGAIN)
local names = redis.call('ZRANGE', groups, '-inf', last, 'BYSCORE', 'LIMIT', 0, MOST_LOOKED_AT)
local open, waiting, live, longest = 0, 0, 0, 0
for _, name in ipairs(names) do
  local key = group_keys .. name
  local items = key .. ':items'
  local found = redis.pcall('HMGET', key, 'status', 'total', 'ended', 'chained', 'numbered', 'began_at_ms', 'filled_at_ms', 'moved_at_ms',
    'stands_for')
  local length = redis.pcall('LLEN', items)
  if not found.err and type(length) == 'number' and (found[1] == 'running' or found[1] == 'cancelling')
    and not found[9] then
    local left = math.max(0, whole(found[2]) - whole(found[3]))
    open = open + 1
    if found[4] then length = math.max(0, left - 1) end  -- of a chain all but one
    if found[5] then left = left + length end  -- what is made again counts as ended until then
    waiting, live = waiting + length, live + math.max(0, left - length)
    longest = math.max(longest, now - math.max(whole(found[6]), whole(found[7]), whole(found[8])))
  end
end
local most = #names < MOST_LOOKED_AT and open or redis.call('ZCOUNT', groups, '-inf', last)
return {most, open, waiting, live, longest}
