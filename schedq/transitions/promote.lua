--[[
Move due jobs from `delayed` to `pending`, and wake an idle worker if `pending` holds jobs.

For a promoter, which gives its id, this also takes or renews the queue's promoter lease, so that one process leads the
queue, and returns what it needs to decide when to look again. A process that does not get the lease is a standby: two
of them have places, which they keep by looking regularly, and the others take turns.

KEYS  pending (list), delayed (zset), processing (list), leases (zset), broken (list), stats (hash), wake (zset),
      paused (string), promoter (string), workers (zset), schedules (zset), standbys (hash), paused_tasks (hash),
      held (zset), lanes (hash), wake_held (zset)
ARGV  jobs, clock
      limit (number): the most jobs to promote
      promoter_id: the caller's id, or '' if it is not a promoter
      lease_ms: length of the promoter lease
      silence_ms (number)
      wakes
Returns  {HELD | STANDBY, now, jobs moved, 1 if more are due, else 0, next due instant or '', earliest end of a lease or
         '', claims without a lease, live workers, next slot of a schedule or '', the id for which an idle worker was
         woken, or '', the caller's part (1 holder, 2 first standby, 3 second, 4 reserve), ms until a standby looks again}
]]
--@include clock
--@include checks
--@include numbers
--@include job
--@include totals
--@include wake
--@include broken
--@include processing
--@include next_due
--@include promote
--@include standby
--@include leave_standby
local bad = wrong_type('list', pending, processing, broken) or wrong_type('zset', delayed, leases)
if bad then return bad end

-- Take the best vacant place; returns which (2, 3, or 4 for a reserve) and in how many ms to look again.
local function stand_by(me, left)
  local first, second, turn, is_hash = read_standbys()
  allow_when_full(leases)
  if not is_hash then redis.call('DEL', standbys) end  -- a damaged key of schedq; nothing in it is worth keeping
  local place, name, wait
  if not first or first == me then
    place, name, wait = 2, 'first', left < OVERDUE_MS and left + 10 or math.max(left + 10, FIRST_MS)
    if second == me then redis.call('HDEL', standbys, 'second', 'second_until_ms') end
  elseif not second or second == me then
    place, name, wait = 3, 'second', left < OVERDUE_MS and left + 10 or SECOND_MS
  else
    turn = math.min(math.max(turn, now) + TURN_MS, now + DAY_MS)
    redis.call('HSET', standbys, 'turn_ms', string.format('%.0f', turn), 'turned_ms', string.format('%.0f', now))
    place, wait = 4, turn - now
  end
  if name then
    redis.call('HSET', standbys, name, me, name .. '_until_ms', string.format('%.0f', now + wait + SLACK_MS))
  end
  redis.call('PEXPIRE', standbys, KEPT_MS)
  return place, wait
end

local word, alive = 'HELD', 0
if promoter_id ~= '' then
  local holder = redis.pcall('GET', promoter)
  alive = redis.pcall('ZCOUNT', workers, now - silence_ms, now + silence_ms)
  if type(alive) == 'table' then alive = 0 end
  -- A lease longer than schedq ever sets was set by hand, or before the clock went back; its holder may be gone.
  local left = type(holder) == 'string' and redis.call('PTTL', promoter) or 0
  if type(holder) == 'string' and holder ~= promoter_id and left >= 0 and left <= tonumber(lease_ms) then
    local place, wait = stand_by(promoter_id, left)
    return {'STANDBY', now, 0, 0, '', '', 0, alive, '', '', place, wait}
  end
  allow_when_full(leases)
  redis.call('SET', promoter, promoter_id, 'PX', lease_ms)
  leave_place(promoter_id)
end

local due, moved = promote_due(limit)
local woken_for = ''
local waits = redis.call('LLEN', pending) > 0
local found = redis.call('EXISTS', wake, held, held)  -- one command for both: 1 for `wake` and 2 for `held`
if waits and found % 2 == 0 then
  allow_when_full(leases)
  set_wake()
  if redis.pcall('EXISTS', wake) == 1 then woken_for = redis.call('LINDEX', pending, -1) end
end
if found >= 2 then
  --@include task_of
  --@include lanes
  --@include open_lanes
  --@include wake_lane
  for _, lane in ipairs(ready_lanes()) do
    allow_when_full(leases)
    if wake_lane(lane.task) and woken_for == '' then woken_for = lane.first end
  end
end
local first_end = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2] or ''
local unleased = redis.call('LLEN', processing) - redis.call('ZCARD', leases)
-- The scheduler reports a damaged key; that must not delay due jobs.
local slot = redis.pcall('ZRANGE', schedules, 0, 0, 'WITHSCORES')
slot = slot.err and '0' or slot[2]
slot = slot ~= 'inf' and slot or ''
return {word, now, moved, due == limit and 1 or 0, next_due(), first_end, unleased, alive, slot, woken_for, 1, 0}
