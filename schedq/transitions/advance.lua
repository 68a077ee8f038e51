--[[
Do what is left of the groups that need attention, a page at a time.

All bits of such a group are counted again, so it does not matter which script was cut short where. Children that ended, or whose
records are gone, without a word to their group are found by an audit of all that have not ended, every 10 s: workers of
other programs and of older releases tell nothing. A group that is called off has its children cancelled. One that was not
closed for a time fails. One whose run has completed, was cancelled, or undoes what it has done, is called off. One that has ended is deleted when its time has
come, or when there are too many, unless its run may still read it. Of one that stands for a group of another queue, only the caller
can say how that one is; see transitions/stand_ins.py.

KEYS  groups (zset), pending (list), delayed (zset), processing (list), leases (zset), cancelled (list), held (zset),
      resting (zset), stats (hash), wake (zset), paused (string), asleep (hash), log (stream)
ARGV  jobs, clock, events, log_size, group_keys, failed_history (number), failed_ttl_ms, min_keep_ms (number)
      request: a new id, for the cancelled jobs
      most_kept (number): how many groups that have ended are kept at most
Returns  {1 if more is left to do now, else 0, the next instant at which a group needs attention, or '',
         for each that stands for a group of another queue: its name, that queue, how its run is, which is over, waits (for it), rests, works, failed,
         keeps (it has recorded the end, and may read the results) or done (it may not), how often it was requeued, and now}
]]
local MOST_GROUPS, MOST_LOOKED_AT, MOST_CANCELLED, YOUNG = 20, 200, 30, 30000
--@include clock
--@include checks
--@include in_transit
--@include numbers
--@include job
--@include totals
--@include wake
--@include events
--@include log
--@include tombstone
--@include trim
--@include retention
--@include group_end
--@include undo
--@include cancel
--@include wake_run
--@include group_next
--@include group_total
--@include group_delete
local bad = wrong_type('zset', groups, delayed, leases) or wrong_type('list', pending, processing, cancelled)
if bad then return bad end

local has_more = false

-- The next number from `from` on whose child has not been counted.
local function next_uncounted(group, from, to)
  while from < to do
    if redis.pcall('GETBIT', group.counted_key, from) == 0 then return from end
    from = from + 1
    if from % 8 == 0 then
      local bit = redis.pcall('BITPOS', group.counted_key, 0, from / 8)
      if type(bit) ~= 'number' then return end
      if bit < 0 then return from < to and from or nil end  -- behind the end of the bitmap all are 0
      from = bit
    end
  end
end

-- Call `act` with the ids and numbers of a page of children that have not been counted; `field` keeps where the page began.
local function each_live(group, field, most, act)
  local numbered, at = unpack(redis.call('HMGET', group.key, 'numbered', field))
  local waiting = redis.pcall('LLEN', group.items)
  if type(waiting) ~= 'number' then return false end
  local to = (numbered == '1' or group.chained) and group.total or group.total - waiting
  local from, looked_at = next_uncounted(group, whole(at), to), 0
  while from and looked_at < most do
    local number = digits(from)
    act(child_id(group, number), number)
    looked_at, from = looked_at + 1, next_uncounted(group, from + 1, to)
    if group.chained then from = nil end
  end
  if from then redis.call('HSET', group.key, field, digits(from)) else redis.call('HDEL', group.key, field) end
  return from ~= nil
end

-- A child that may have ended without a word.
local function look_at_child(group, id, number)
  local job = redis.pcall('HMGET', jobs .. id, 'status', 'result', 'last_error', 'cancel_reason')
  local field = group.name .. ' ' .. number .. ' ' .. group.generation
  if job.err or (not job[1] and redis.call('EXISTS', jobs .. id) == 0) then
    if group.chained then return end  -- the link has yet to be made
    return tell_group(field, id, false, 'its record is gone')
  end
  if not FINISHED[job[1]] then return end
  tell_group(field, id, job[1] == 'completed', job[1] == 'completed' and (job[2] or 'null') or job[3] or job[4] or job[1])
end

local function audit(group)
  local due = whole(redis.call('HGET', group.key, 'audit_at_ms'))
  if due > now and due <= now + LOOK_AGAIN then return false end
  local is_more = each_live(group, 'audited_to', MOST_LOOKED_AT, function(id, number) look_at_child(group, id, number) end)
  if not is_more then redis.call('HSET', group.key, 'audit_at_ms', digits(now + LOOK_AGAIN)) end
  return is_more
end

local function cancel_children(group)
  if redis.call('HGET', group.key, 'cancel_from') == 'done' then return false end
  local is_more = each_live(group, 'cancel_from', MOST_CANCELLED, function(id)
    local job = read_job(id, 'status', 'payload', 'request', 'attempts', 'waiter', 'failed_ttl_ms', 'group', 'waits', 'run')
    if job and not FINISHED[job[1]] then cancel_job(id, job, request) end
  end)
  if not is_more then redis.call('HSET', group.key, 'cancel_from', 'done') end
  return is_more
end

local function fail_unclosed(group)
  local found = redis.call('HMGET', group.key, 'closed', 'filled_at_ms', 'close_within_ms')
  local most = whole(found[3])
  if found[1] == '1' or most == 0 or group.status ~= 'running' or math.abs(now - whole(found[2])) < most then return end
  redis.call('HSET', group.key, 'status', 'cancelling', 'becomes', 'failed', 'error', 'it was never closed: its producer has gone')
  group.status = 'cancelling'
end

-- The status of the run that a group works for, '' for one that is gone, whether it undoes what it has done, what it waits for, and
-- how often it was requeued; nil for a group that works for none.
local function status_of_run(key)
  local id = redis.call('HGET', key, 'wake')
  local found = id and redis.pcall('HMGET', jobs .. id, 'status', 'run', 'waits')
  if not id or found.err then return id and '' end
  return found[1] or '', undoing_of(found[2]) ~= nil, found[3] or '', string.match(found[2] or '', ' requeued=(%d+)') or '0'
end

-- A run that has failed may be requeued, so its children continue.
local function leave_with_run(group)
  local status, is_undoing = status_of_run(group.key)
  if group.status == 'running' and (is_undoing or status == '' or status == 'completed' or status == 'cancelled') then
    redis.call('HSET', group.key, 'status', 'cancelling', 'becomes', 'cancelled')
    group.status = 'cancelling'
  end
end

local function attend(name)
  local group = group_named(name)
  if not group then return false end
  told[name] = group
  resolve_total(group)
  fail_unclosed(group)
  leave_with_run(group)
  local is_more = audit(group)
  if group.status == 'cancelling' then is_more = cancel_children(group) or is_more end
  local ended, succeeded = redis.pcall('BITCOUNT', group.counted_key), redis.pcall('BITCOUNT', group.succeeded_key)
  if type(ended) ~= 'number' or type(succeeded) ~= 'number' then  -- damaged, which the doctor says
    redis.call('ZADD', groups, digits(now + LOOK_AGAIN), name)
    return false
  end
  redis.call('HSET', group.key, 'ended', ended, 'succeeded', succeeded)
  if redis.call('HGET', group.key, 'seen_ended') ~= digits(ended) then  -- for those who watch whether it makes progress
    redis.call('HSET', group.key, 'seen_ended', digits(ended), 'moved_at_ms', stamp)
  end
  if group.more_bytes > 0 then redis.call('HINCRBY', group.key, 'bytes', group.more_bytes) end
  group.look_at = digits(now + (is_more and 0 or LOOK_AGAIN))
  return go_on(group, ended, succeeded, true) or is_more
end

-- Whether the run that a group worked for may still read what its children returned.
local function may_be_read(key)
  local status = status_of_run(key)
  return status and status ~= '' and status ~= 'completed' and status ~= 'cancelled'
end

-- A group that has ended, or is none.
local function tidy(name)
  local key = group_keys .. name
  local found = redis.pcall('HMGET', key, 'status', 'ended_at_ms', 'kept_ms')
  if found.err then return redis.call('ZREM', groups, name) end
  local due = whole(found[2]) + whole(found[3])
  if found[1] and found[1] ~= 'deleted' then
    if may_be_read(key) then due = now + whole(found[3]) end
    if due > now then return redis.call('ZADD', groups, digits(due), name) end
  end
  if not delete_group(name) then has_more = true end
end

local stand_ins = {}

-- Its run closes it after having recorded the end. If it has ended otherwise, it was called off, or an older release ended it:
-- then the group that it stands for is to end, too.
local function note_stand_in(name, key, found)
  local run, is_undoing, waits, requeued = status_of_run(key)
  local is_over = is_undoing or not run or run == '' or run == 'completed' or run == 'cancelled'
  local word = run == 'failed' and 'failed' or 'works'
  if run == 'delayed' then word = string.find(waits, '"' .. name .. '"', 1, true) and 'waits' or 'rests' end
  if found[3] == '1' then
    word = is_over and 'done' or 'keeps'
  elseif is_over or found[1] ~= 'running' then
    word = 'over'
  end
  redis.call('ZADD', groups, digits(now + math.max(LOOK_AGAIN, word == 'keeps' and whole(found[4]) or 0)), name)
  stand_ins[#stand_ins + 1] = {name, found[2], word, requeued or '0', now}
end

allow_when_full(leases)
for _, name in ipairs(redis.call('ZRANGE', groups, '-inf', stamp, 'BYSCORE', 'LIMIT', 0, MOST_GROUPS)) do
  local key = group_keys .. name
  local found = redis.pcall('HMGET', key, 'status', 'stands_for', 'closed', 'kept_ms')
  local status = found[1]
  if found[2] and status and status ~= 'deleted' then
    note_stand_in(name, key, found)
  elseif status == 'running' or status == 'cancelling' then
    has_more = attend(name) or has_more
  else
    tidy(name)
  end
end
-- The instants of those that have ended lie further ahead than those of others. Those in a year are of runs in other queues.
local kept = {'(' .. digits(now + 2 * LOOK_AGAIN), digits(now + YEAR / 2)}
if redis.call('ZCOUNT', groups, unpack(kept)) > most_kept then
  local name = redis.call('ZRANGE', groups, kept[1], kept[2], 'BYSCORE', 'LIMIT', 0, 1)[1]
  local key = group_keys .. name
  local ended = whole(redis.pcall('HGET', key, 'ended_at_ms'))
  if may_be_read(key) then
    redis.call('ZADD', groups, digits(now + math.max(4 * LOOK_AGAIN, whole(redis.call('HGET', key, 'kept_ms')))), name)
  elseif math.abs(now - ended) > YOUNG then
    has_more = not delete_group(name) or true
  end
end
if jobs_made > 0 or has_woken then set_wake() end
local at = redis.call('ZRANGE', groups, 0, 0, 'WITHSCORES')[2]
return {has_more and 1 or 0, at or '', stand_ins}
