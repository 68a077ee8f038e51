--[[
Move due jobs from `delayed` to `pending`, and let an idle worker look if `pending` holds jobs.

A promoter names itself: then this also takes, keeps or respects the queue's promoter lease, so that one process does
the waking, and tells it all it needs to know about when to look again. Who does not get the lease stands by: two
have places, which they keep by looking, and the others take turns.

KEYS  1 pending (list)  2 delayed (zset)  3 processing (list)  4 leases (zset)  5 broken (list)  6 stats (hash)
      7 wake (zset)  8 paused (string)  9 promoter (string)  10 workers (zset)  11 schedules (zset)
      12 standbys (hash)
ARGV  1 jobs prefix  2 clock  3 limit  4 promoter id, or '' to move only  5 promoter lease, ms  6 ms of silence after
      which a worker does not count
Returns  {HELD | STANDBY, now, moved, whether more are due (1 or 0), next due instant or '', first end of a lease or '',
         claims without a lease, live workers, next slot of a schedule or '', the id for which an idle worker was woken,
         or '', the caller's part (1 holder, 2 first standby, 3 second, 4 reserve), ms until a standby looks again}
]]
local pending, delayed, processing, leases, broken = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local stats, wake, paused, promoter, workers = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local schedules, standbys = KEYS[11], KEYS[12]
local jobs, clock, limit, me, lease_ms, silence_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
--@include _clock
--@include _guard
--@include _job
--@include _tally
--@include _wake
--@include _broken
--@include _place
--@include _promote
--@include _standby
local bad = misfit('list', pending, processing, broken) or misfit('zset', delayed, leases)
if bad then return bad end

local answer, alive = 'HELD', 0
if me ~= '' then
  local holder = redis.pcall('GET', promoter)
  alive = redis.pcall('ZCOUNT', workers, now - silence_ms, now + silence_ms)
  if type(alive) == 'table' then alive = 0 end
  -- A lease that lasts longer than any is given was set before the clock went back, or by hand: nobody may be left.
  local left = type(holder) == 'string' and redis.call('PTTL', promoter) or 0
  if type(holder) == 'string' and holder ~= me and left >= 0 and left <= tonumber(lease_ms) then
    local place, wait = stand_by(me, left)
    return {'STANDBY', now, 0, 0, '', '', 0, alive, '', '', place, wait}
  end
  open_memory(leases)
  redis.call('SET', promoter, me, 'PX', lease_ms)
  leave_place(me)
end

local due, moved = promote_due(limit)
local woken_for = ''
if redis.call('LLEN', pending) > 0 and redis.pcall('EXISTS', wake) == 0 then
  open_memory(leases)
  set_wake()
  if redis.pcall('EXISTS', wake) == 1 then woken_for = redis.call('LINDEX', pending, -1) end
end
local first_end = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2] or ''
local unleased = redis.call('LLEN', processing) - redis.call('ZCARD', leases)
-- A damaged key is for who fires schedules to complain of, not for those whose jobs are due.
local slot = redis.pcall('ZRANGE', schedules, 0, 0, 'WITHSCORES')
slot = slot.err and '0' or slot[2]
slot = slot ~= 'inf' and slot or ''
return {answer, now, moved, due == limit and 1 or 0, next_due(), first_end, unleased, alive, slot, woken_for, 1, 0}
