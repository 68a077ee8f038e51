--[[
Move due jobs from `delayed` to `pending`, and wake an idle worker if `pending` holds jobs.

A due job that belongs to a gate goes to its lane, and keys and gates that have rested are looked at again; see
shared/gates.lua.

For a promoter, which gives its id, this also takes or renews the queue's promoter lease, so that one process leads the
queue, and returns what it needs to decide when to look again. A process that does not get the lease is a standby: two
of them have places, which they keep by looking regularly, and the others take turns.

KEYS  pending (list), delayed (zset), processing (list), leases (zset), broken (list), stats (hash), wake (zset),
      promoter (string), workers (zset), schedules (zset), held (zset), gates (hash), groups (zset)
RARE  paused (string), asleep (hash), standbys (hash), paused_tasks (hash), lanes (hash), wake_held (zset), open_gates (zset),
      resting (zset), gate_holds (zset), gate_turns (hash), gate_keys (prefix), wakes (prefix)
ARGV  prefix, jobs, clock, due_channel
      limit (number): the most jobs to promote
      promoter_id: the caller's id, or '' if it is not a promoter
      lease_ms (number): length of the promoter lease
      rest_ms (number): for how long the caller may rest if nothing needs it, or ''
      silence_ms (number)
Returns  {HELD | STANDBY, now, jobs moved, 1 if more are due, else 0, next due instant or '', earliest end of a lease or
         '', claims without a lease, live workers, next slot of a schedule or '', the id for which an idle worker was
         woken, or '', the caller's part (1 holder, 2 first standby, 3 second, 4 reserve), ms until a standby looks again
         or for which the holder rests, the next instant at which a group needs attention, or '', the µs of `now`}
]]
local MOST_ROUSED = 100
--@include clock
--@include checks
--@include numbers
--@include job
--@include totals
--@include wake
--@include broken
--@include processing
--@include next_due
local more_fields, enter_gates, look_at_gates = {}, nil, nil  -- if there are gates
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
    if left > lease_ms then wait = left + SECOND_MS - FIRST_MS end  -- after the first, while the holder rests
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

-- One command for all: 1 for `wake`, 2 for `held`, 4 for `gates` and 8 for `groups`.
local found = redis.call('EXISTS', wake, held, held, gates, gates, gates, gates, groups, groups, groups, groups, groups, groups, groups,
  groups)
local group_at = found >= 8 and redis.pcall('ZRANGE', groups, 0, 0, 'WITHSCORES')[2] or ''
found = found % 8
if found >= 4 then
  bad = wrong_type('hash', gates, lanes, gate_turns) or wrong_type('zset', held, open_gates, resting, gate_holds)
  if bad then return bad end
end

local word, alive = 'HELD', 0
if promoter_id ~= '' then
  local holder = redis.pcall('GET', promoter)
  alive = redis.pcall('ZCOUNT', workers, now - silence_ms, now + silence_ms)
  if type(alive) == 'table' then alive = 0 end
  -- A lease longer than schedq ever sets was set by hand, or before the clock went back; its holder may be gone.
  local left = type(holder) == 'string' and redis.call('PTTL', promoter) or 0
  if type(holder) == 'string' and holder ~= promoter_id and left >= 0 and left <= lease_ms + MOST_REST_MS then
    local place, wait = stand_by(promoter_id, left)
    return {'STANDBY', now, 0, 0, '', '', 0, alive, '', '', place, wait, '', 0}
  end
  allow_when_full(leases)
  redis.call('SET', promoter, promoter_id, 'PX', lease_ms)
  leave_place(promoter_id)
end

local wake_lanes
if found >= 2 then
  --@include lanes
  if found >= 4 then
    --@include gates
    --@include rouse
    --@include queue_limits
    --@include place_lanes
    more_fields, enter_gates = {'gate', 'key'}, enter
    allow_when_full(leases)

    -- Returns whether gates have jobs that may start, whether the queue may start any, whether there is more to look at,
    -- and when to look again, or ''.
    look_at_gates = function()
      local has_more = rouse(MOST_ROUSED)
      local from = redis.pcall('HGET', gate_turns, ' look')  -- limits have changed: look at all lanes
      if type(from) == 'string' then
        local next_number = place_lanes(whole(from), MOST_ROUSED)
        if next_number then redis.call('HSET', gate_turns, ' look', next_number) else redis.call('HDEL', gate_turns, ' look') end
        has_more = has_more or next_number ~= nil
      end
      close_gates()
      local at = redis.call('ZRANGE', resting, 0, 0, 'WITHSCORES')[2] or ''
      return redis.call('ZCARD', open_gates) > 0, not is_queue_full(), has_more, at ~= 'inf' and at or ''
    end
  end
  if found % 4 >= 2 then
    --@include task_of
    --@include paused_tasks
    --@include open_lanes
    --@include wake_lane
    -- Returns the first job for which an idle worker was woken, or '', and whether there are jobs that may be claimed.
    wake_lanes = function()
      local woken, lanes_ready = '', ready_lanes()
      for _, lane in ipairs(lanes_ready) do
        allow_when_full(leases)
        if wake_lane(lane.task) and woken == '' then woken = lane.first end
      end
      return woken, #lanes_ready > 0
    end
  end
end
local due, moved = promote_due(limit)
local woken_for, next_rest = '', ''
local waits, may_start, has_roused = redis.call('LLEN', pending) > 0, true, false
if look_at_gates then
  local are_open
  are_open, may_start, has_roused, next_rest = look_at_gates()
  waits = (waits or are_open) and may_start
end
if waits and found % 2 == 0 then
  allow_when_full(leases)
  set_wake()
  if redis.pcall('EXISTS', wake) == 1 then woken_for = redis.call('LINDEX', pending, -1) or '' end
end
if wake_lanes and may_start then
  local woken, have_jobs = wake_lanes()
  if woken_for == '' then woken_for = woken end
  waits = waits or have_jobs
end
local first_end = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2] or ''
local unleased = redis.call('LLEN', processing) - redis.call('ZCARD', leases)
-- The scheduler reports a damaged key; that must not delay due jobs.
local slot = redis.pcall('ZRANGE', schedules, 0, 0, 'WITHSCORES')
slot = slot.err and '0' or slot[2]
slot = slot ~= 'inf' and slot or ''
local first = next_due()
if next_rest ~= '' and (first == '' or tonumber(next_rest) < tonumber(first)) then first = next_rest end
-- A script that wakes a worker also calls a promoter that rests. The promoter knows when a delayed job, a gate or a group is
-- due, and needs no call for them.
local rest = 0
local is_group_due = group_at ~= '' and not (tonumber(group_at) > now)
local is_unused = found % 2 == 0 and not (waits or is_group_due or has_roused) and slot == '' and first_end == '' and unleased == 0
if rest_ms and is_unused and moved == 0 then
  allow_when_full(leases)
  if type(redis.pcall('HSET', asleep, 'channel', due_channel)) == 'number' then
    rest = math.min(rest_ms, MOST_REST_MS)
    redis.call('PEXPIRE', asleep, rest)
    redis.call('PEXPIRE', promoter, rest + lease_ms)
  end
end
local micros = redis_time and redis_time[2] % 1000 or 0
return {word, now, moved, (due == limit or has_roused) and 1 or 0, first, first_end, unleased, alive, slot, woken_for, 1, rest, group_at,
  micros}
