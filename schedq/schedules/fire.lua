--[[
Fire slots of schedules: enqueue the job of each slot once, store the next slot and the outcome of this one.

The caller has planned from a slot and a definition. If either has changed since, another process was faster, and nothing
is written. The job's id contains the slot, so a job is not enqueued twice if an error ended the script before the slot
was recorded. Overlap is decided by the state of the last run's job. The first write is one that Redis refuses when
memory is full, so then everything fails, and the slots stay due.

KEYS  schedules (zset), pending (list), delayed (zset), processing (list), leases (zset), cancelled (list),
      broken (list), stats (hash), wake (zset), paused (string), asleep (hash), promoter (string), log (stream), held (zset),
      resting (zset), groups (zset)
ARGV  jobs, clock, events, log_size, due_channel, group_keys, definitions, failed_history (number), failed_ttl_ms,
      min_keep_ms (number)
      kept (number): how many slots to keep the outcome of
      plans...: per schedule: id, slot, definition, next slot or '', count of entries; and per entry: fire | skip |
        coalesce | disable, first slot, last slot, how many, when the job is due or why it is skipped or disabled
Returns  {jobs enqueued, per schedule: FIRED | WAITS (for the last run) | MOVED (it has changed since it was planned) |
         DISABLED (it can't be fired) | GONE}; fewer words than schedules means "the rest is still due"
]]
local MOST_JOBS, MOST_BYTES, MOST_CANCELLED = 120, 1048576, 20
local LAST_INSTANT = 253402300799999
local OPTIONS = {'max_attempts', 'backoff', 'timeout_ms', 'expires', 'headers', 'completed_ttl_ms', 'failed_ttl_ms',
  'gate', 'key'}
local ACTIVE = {pending = true, delayed = true, processing = true}
--@include clock
--@include checks
--@include in_transit
--@include numbers
--@include job
--@include totals
--@include wake
--@include due
--@include events
--@include log
--@include tombstone
--@include trim
--@include retention
--@include group_end
--@include undo
--@include cancel
--@include broken
--@include slot_log
local bad = wrong_type('zset', schedules, delayed, leases) or wrong_type('list', pending, processing, cancelled, broken)
if bad then return bad end

local head = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or LAST_INSTANT + 1)
local made, bytes, cancels = {}, 0, 0  -- jobs to enqueue: {fields, due}
local is_made = {}

local function state_of(job_id)
  if is_made[job_id] then return 'pending' end
  local status = redis.pcall('HGET', jobs .. job_id, 'status')
  return ACTIVE[status] and status
end

local function make(turn, job_id, slot, due)
  local stored = turn.stored
  local fields = {'id', job_id, 'payload', stored[2], 'status', due > now and 'delayed' or 'pending', 'attempts', 0,
    'enqueued_at_ms', now, 'run_at_ms', due, 'schedule', turn.id, 'slot_ms', slot}
  for n, name in ipairs(OPTIONS) do
    local value = stored[7 + n]
    if value and value ~= '' then
      -- A job that is due later, by its jitter, may wait as long for a worker as any other.
      if name == 'expires' and due > now and whole(string.sub(value, 2)) > 0 then
        value = '+' .. digits(whole(string.sub(value, 2)) + due - now)
      end
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
  end
  made[#made + 1] = {fields, due}
  is_made[job_id] = true
  bytes = bytes + #stored[2]
end

-- Enqueue a slot's job unless the last run or a limit forbids it; returns the reason, or nil.
local function fire(turn, slot, due)
  local job_id, overlap = turn.id .. '-' .. slot, turn.stored[3]
  local is_there = redis.call('EXISTS', jobs .. job_id) == 1
  if is_there then
    if redis.pcall('HGET', jobs .. job_id, 'payload') ~= turn.stored[2] then return 'another job has its id' end
    turn.may_be_logged = true
  end
  local is_counted = turn.last == job_id  -- an error ended the script after this was written
  if not is_counted and turn.most > 0 and turn.runs >= turn.most then return 'max_runs' end
  local last = not is_counted and turn.last and state_of(turn.last)
  if last and overlap == 'skip' and not is_there then return 'the last run is ' .. last end
  if last and overlap == 'cancel_running' and not is_made[turn.last] then
    turn.cancel = turn.last
    cancels = cancels + 1
  end
  if not is_there then make(turn, job_id, slot, due) end
  if not is_counted then turn.runs = turn.runs + 1 end
  turn.last, turn.has_fired = job_id, true
end

local function entry(turn, outcome, from, to, count, detail)
  local note
  if outcome == 'fire' then
    local why = fire(turn, from, math.min(tonumber(detail), LAST_INSTANT))
    outcome = why and 'skipped' or 'fired'
    note = why and '"why":"' .. why .. '"' or '"job_id":"' .. turn.last .. '","late_ms":' .. digits(now - tonumber(from))
  elseif outcome == 'skip' then
    outcome, note = 'skipped', '"why":"' .. detail .. '","late_ms":' .. digits(now - tonumber(to))
  else
    outcome, note = 'coalesced', '"into_ms":' .. detail
  end
  turn.lines[#turn.lines + 1] = slot_line(from, to, count, outcome, note)
  turn.to = to
end

local function is_waiting(turn, first, count)
  if turn.stored[3] ~= 'queue_one' or not turn.last then return false end
  for n = first, first + 5 * (count - 1), 5 do
    if ARGV[n] == 'fire' then return turn.last ~= turn.id .. '-' .. ARGV[n + 1] and state_of(turn.last) end
  end
end

-- Decide what happens to one schedule; nothing is written yet.
local function decide(turn, definition, first, count)
  local id = turn.id
  local score = redis.call('ZSCORE', schedules, id)
  if not score or tonumber(score) ~= turn.slot or turn.slot > now then return 'MOVED' end
  if #id > 48 or id == '' or string.find(id, '[^%w_-]') then
    turn.gone = 'its id breaks the rule for schedules'
    return 'GONE'
  end
  local stored = redis.pcall('HMGET', definitions .. id, 'definition', 'payload', 'overlap', 'last_job_id', 'runs',
    'max_runs', 'paused_at_ms', unpack(OPTIONS))
  if stored.err then turn.gone = 'its data is of the wrong type' return 'GONE' end
  if not stored[1] and redis.call('EXISTS', definitions .. id) == 0 then turn.gone = 'its definition is gone' return 'GONE' end
  if (stored[1] or '') ~= definition then return 'MOVED' end
  if stored[7] then turn.error = '' return 'DISABLED' end
  if ARGV[first] == 'disable' then turn.error = ARGV[first + 4] return 'DISABLED' end
  if not stored[2] then turn.error = 'it has no payload' return 'DISABLED' end
  turn.stored, turn.last, turn.runs, turn.most = stored, stored[4], whole(stored[5]), whole(stored[6])
  if is_waiting(turn, first, count) then return 'WAITS' end
  for n = first, first + 5 * (count - 1), 5 do
    if tonumber(ARGV[n + 2]) > now then return 'MOVED' end
  end
  for n = first, first + 5 * (count - 1), 5 do
    entry(turn, ARGV[n], ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n + 4])
  end
  if turn.most > 0 and turn.runs >= turn.most then turn.upcoming = '' end
  return 'FIRED'
end

local words, turns, i = {0}, {}, plans_start
while i <= #ARGV and #made < MOST_JOBS and bytes < MOST_BYTES and cancels < MOST_CANCELLED do
  local count = tonumber(ARGV[i + 4])
  if #made > 0 and #made + count > MOST_JOBS then break end
  local turn = {id = ARGV[i], slot = tonumber(ARGV[i + 1]), upcoming = ARGV[i + 3], lines = {}}
  local word = decide(turn, ARGV[i + 2], i + 5, count)
  words[#words + 1] = word
  if word ~= 'MOVED' and word ~= 'WAITS' then turns[#turns + 1] = turn end
  i = i + 5 + 5 * count
end

-- First the list entry, then the job, the outcome, and last the next slot: if an error ends the script, the slot is still
-- due.
local now_ids, later, earliest = {}, {}, LAST_INSTANT + 1
for _, job in ipairs(made) do
  if job[2] > now then
    later[#later + 1], later[#later + 2] = job[2], job[1][2]
    earliest = math.min(earliest, job[2])
  else
    now_ids[#now_ids + 1] = job[1][2]
  end
end
if #now_ids > 0 then redis.call('LPUSH', pending, unpack(now_ids)) end
if #later > 0 then redis.call('ZADD', delayed, unpack(later)) end
for _, job in ipairs(made) do redis.call('HSET', jobs .. job[1][2], unpack(job[1])) end

local scores, gone = {}, {}
for _, turn in ipairs(turns) do
  if turn.gone then
    to_broken('schedule:' .. turn.id, turn.gone)
    gone[#gone + 1] = turn.id
  else
    local upcoming = turn.upcoming == '' and '+inf' or turn.upcoming
    if turn.error then
      redis.call('HSET', definitions .. turn.id, 'error', turn.error, 'parked_ms', digits(turn.slot))
      upcoming = '+inf'
    else
      if turn.cancel then
        local job = read_job(turn.cancel, 'status', 'payload', 'request', 'attempts', 'waiter', 'failed_ttl_ms', 'group', 'waits', 'run')
        if job and not FINISHED[job[1]] then cancel_job(turn.cancel, job, turn.last) end
      end
      local key = definitions .. turn.id
      write_slot_log(key .. ':slots', turn.lines, kept, turn.may_be_logged or not turn.has_fired)
      if turn.has_fired then
        redis.call('HSET', key, 'last_slot_ms', turn.to, 'runs', turn.runs, 'last_job_id', turn.last, 'last_fired_at_ms', now)
      else
        redis.call('HSET', key, 'last_slot_ms', turn.to)
      end
    end
    scores[#scores + 1], scores[#scores + 2] = upcoming, turn.id
  end
end
if #scores > 0 then redis.call('ZADD', schedules, unpack(scores)) end
if #gone > 0 then redis.call('ZREM', schedules, unpack(gone)) end
add_to_total('enqueued_total', #made)
add_to_total('fired_total', #made)
if #now_ids > 0 then set_wake() end
if earliest < head then announce_due(earliest) end
words[1] = #made
return words
