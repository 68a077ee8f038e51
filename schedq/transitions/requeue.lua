--[[
Move failed and cancelled jobs back to `pending`, with their attempts at 0, unless another job holds their unique key.

They are due now, so that the time before does not count as lateness. A run continues after its last memo. It forgets the
failure that ended it, and its deadline counts from now. One that was undoing what it had done continues to do so; if nothing is
left to undo, it runs again from its beginning, without a record.

The longer the two lists, the fewer jobs a call takes, because it searches them for each job that is not among the
oldest.

KEYS  pending (list), failed (list), cancelled (list), stats (hash), wake (zset), paused (string), asleep (hash), log (stream),
      leases (zset), unique_keys (hash), groups (zset)
ARGV  jobs, clock, log_size, group_keys
      request: a new id, by which a repeated request is recognized
      undoes (flag): only runs that have something to undo; they undo what they have done, and end as before
      ids...
Returns  per job: yes | no (neither failed nor cancelled, or nothing is to be undone) | UNIQUE and the id of the job that holds its unique key; fewer
         words than ids means "send the rest again"
]]
--@include clock
--@include checks
--@include in_transit
--@include numbers
--@include job
--@include totals
--@include wake
--@include log
--@include idempotent
--@include expiry
--@include unique
--@include group_end
--@include undo
local bad = wrong_type('list', pending, failed, cancelled) or wrong_type('zset', leases)
if bad then return bad end

local searched = redis.call('LLEN', failed) + redis.call('LLEN', cancelled)
local MOST_SEARCHED, OLDEST, LONG, spent = 200000, 400, 2000, 0
local is_oldest = {}
for _, list in ipairs(#ARGV - ids_start >= 10 and {failed, cancelled} or {}) do
  for _, id in ipairs(redis.call('LRANGE', list, -OLDEST, -1)) do is_oldest[id] = list end
end
local words, ids = {}, {}
allow_when_full(leases)

-- The end from which to search a long list: both lists are in the order in which jobs were added, newest at the left.
local function nearer_end(id, list, job)
  local length = redis.call('LLEN', list)
  if is_oldest[id] or length < LONG then return -1 end
  local field = list == failed and 'last_error_at_ms' or 'cancelled_at_ms'
  local middle = redis.pcall('HGET', jobs .. redis.call('LINDEX', list, math.floor(length / 2)), field)
  local at = list == failed and job[5] or job[6]
  return type(middle) == 'string' and whole(at) > whole(middle) and 1 or -1
end

-- The other job that holds the unique key of this one, or nil; then this one holds it from now on.
local function take_key(id, unique, rule)
  local holder, its_job = holder_of(unique, rule_of(rule))
  if its_job and holder ~= id then return holder end
  local note = redis.pcall('HGET', unique_keys, unique)
  local window = string.match(type(note) == 'string' and note or '', '^(%d+) ')
  redis.pcall('HSET', unique_keys, unique, (window or '0') .. ' ' .. id)
  redis.call('HDEL', jobs .. id, 'started_at_ms')  -- of an earlier attempt; it has not begun since
end

-- `run` without the failures that ended the run, and the fields that hold them.
local function forget_failures(id, run)
  --@include run
  --@include failures
  local gone = {}
  run = without(run, 'left')
  if undoing_of(run) and open_undos(run) == 0 then  -- start_over.lua removes its memos, before anything else
    run = with_number(with_number(without(run, 'undoing'), 'life', number_in(run, 'life') + 1), 'void', 1)
    for _, name in ipairs({'steps', 'bytes', 'large', 'errors', 'tried'}) do run = with_number(run, name, 0) end
    run = with_number(run, 'began', now)
  elseif number_in(run, 'errors') > 0 or number_in(run, 'tried') > 0 then
    spent = spent + 40 * number_in(run, 'steps') + floor(number_in(run, 'bytes') / 20)
    local open, tries = failures_of(id)
    for field, memo in pairs(open) do
      run = counted(run, memo, -1)
      gone[#gone + 1] = field
    end
    for _, field in ipairs(tries) do gone[#gone + 1] = field end
    run = with_number(run, 'tried', 0)
  end
  run = with_number(run, 'requeued', number_in(run, 'requeued') + 1)
  if undoes and not undoing_of(run) then
    run = to_undo(run, false)
  elseif number_in(run, 'timeout') > 0 and not undoing_of(run) then
    run = with_number(run, 'deadline', now + number_in(run, 'timeout'))
  end
  return run, gone
end

-- A child that is to run again has not ended. In a group that has, it is a job like any other.
local function take_back_end(field)
  local name, number, generation = string.match(field, '^([%w_-]+) (%d+) (%w+)$')
  local group = name and group_named(name)
  if group and group.status == 'running' and group.generation == generation and whole(number) < group.total then
    redis.pcall('SETBIT', group.counted_key, number, 0)  -- the mark stays: the counters are wrong now
  end
end

local function revive(id, job)
  local key = jobs .. id
  if undoes and (open_undos(job[10]) == 0) then return 'no' end
  local holder = job[8] and take_key(id, job[8], job[9])
  if holder then return 'UNIQUE ' .. holder end
  if job[11] then take_back_end(job[11]) end
  spent = spent + (is_oldest[id] and OLDEST or searched) + 200
  mark_in_transit(id)
  -- Another program may have trimmed the entry but not the record.
  local here, there = failed, cancelled
  if job[1] == 'cancelled' then here, there = cancelled, failed end
  -- A damaged status may name the wrong list.
  if redis.call('LREM', here, nearer_end(id, here, job), id) == 0 then redis.call('LREM', there, -1, id) end
  local of_run = {}
  if job[10] then
    local run, gone = forget_failures(id, job[10])
    if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end  -- first: `run` says whether there is something to forget
    of_run = {'run', run}
    if undoes and not undoing_of(job[10]) then of_run = {'run', run, 'undoing', job[12] or ''} end
  end
  redis.call('HSET', key, 'id', id, 'status', 'pending', 'attempts', 0, 'request', request .. ' yes', 'run_at_ms', stamp,
    unpack(of_run))
  redis.call('HDEL', key, 'crashes', 'released', 'stop', 'claim_token', 'settled_token', 'settled_move', 'adopted_token',
    'promoted_at_ms', 'unknown_since_ms', 'expires', 'cancel_reason', 'waits')
  redis.call('PERSIST', key)
  ids[#ids + 1] = id
  write_log(undoes and 'undo' or 'requeue', id, whole(job[4]))
  return 'yes'
end

for i = ids_start, #ARGV do
  if #words > 0 and spent + OLDEST > MOST_SEARCHED then break end
  local job = read_job(ARGV[i], 'status', 'payload', 'request', 'attempts', 'last_error_at_ms', 'cancelled_at_ms',
    'tombstone', 'unique', 'unique_rule', 'run', 'group', 'last_error')
  local word = job and earlier_reply(job[3], request)
  if not word then
    word = (job and not job[7] and (job[1] == 'failed' or job[1] == 'cancelled')) and revive(ARGV[i], job) or 'no'
  end
  words[#words + 1] = word
end
if #ids > 0 then
  redis.call('LPUSH', pending, unpack(ids))
  unmark_in_transit(unpack(ids))
  add_to_total('requeued_total', #ids)
  set_wake()
end
return words
