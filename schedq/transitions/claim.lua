--[[
Move jobs from `pending` to `processing`, each with a lease and a new token, after promoting due jobs to `pending`.

An entry that can't be run moves to where operators see it (`broken`, `failed`); a second entry of the same id is
dropped; a job that has not begun by the instant in its field `expires` is cancelled.

A job that lost two leases is a suspect: it may be a poison pill that kills its workers, so a process gets one at a
time. Suspects that the caller may not take move to `delayed`, so that they block no other job. The next claim that
may take a suspect takes the first of them from there; without such a claim they become due a few a second. However many
entries can't be run, a call looks at only a few more entries than it may take.

Jobs of a paused task, and of a task that the caller does not take, are held: the claim that reaches them moves them to
their lane in `held`, so that no claim looks at them again. They stay pending. While jobs are held, a claim also
takes jobs from the lanes of tasks that are not paused and that the caller takes, before those in `pending`. Lanes have
wake markers of their own: if all workers waited for one, two that are limited to different tasks could wake each other
forever, each for the other's jobs.

Jobs that belong to a gate wait in lanes, too, and start when their gate and their key allow it; see shared/gates.lua. A
claim brings those that it meets in `pending` there. While nothing has a gate, none of this is looked at.

KEYS  pending (list), processing (list), leases (zset), delayed (zset), wake (zset), paused (string),
      paused_tasks (hash), held (zset), gates (hash)
RARE  failed (list), broken (list), stats (hash), log (stream), suspects (zset), cancelled (list), lanes (hash),
      wake_held (zset), open_gates (zset), resting (zset), gate_holds (zset), gate_turns (hash), groups (zset),
      gate_keys (prefix), group_keys (prefix), wakes (prefix), asleep (hash)
ARGV  prefix, jobs, clock, events, log_size
      request: a new id; the tokens of the claimed jobs begin with it
      limit (number): the most jobs to claim
      visibility_ms (number)
      worker: id of the worker, or ''
      allowed (number): how many suspects the caller may take (0 or 1); -1: none, and only first attempts that are not
        the last ones
      promote_limit (number): the most jobs to promote
      bytes (number): the most bytes of payloads
      only: the tasks whose jobs the caller takes, as a JSON array; '' for all. In the array, '' stands for payloads that
        call no task
      failed_history (number), failed_ttl_ms, min_keep_ms (number), due_channel
      share...: if several processes share the jobs: the number of processes, of jobs held by all of them, and of jobs
        held by the caller
Returns  {OK | PAUSED, now, next due instant or '', flags: 1 if more jobs wait, 2 if suspects were passed over, job, ...},
         a job as in shared/claimed.lua
]]
local MOST_PASSED_OVER, MOST_DROPPED, MOST_HELD, MOST_ROUSED, PAGE = 100, 200, 300, 30, 50
local REST, SPACING = 10000, 100  -- ms until the first passed-over suspect becomes due, and between two of them
local KEPT = 60000
--@include clock
--@include checks
--@include numbers
--@include job
--@include totals
--@include wake
--@include broken
--@include processing
--@include next_due
--@include expiry
--@include claimed
-- The first write, as in allow_when_full. It shows the type of `leases`, as the first read of `delayed` shows its type.
local removed, earliest = redis.pcall('ZREM', leases, ''), redis.pcall('ZRANGE', delayed, 0, 0, 'WITHSCORES')
local bad = wrong_type('list', pending, processing)
  or (type(removed) ~= 'number' and (wrong_type('zset', leases) or removed))
  or (earliest.err and (wrong_type('zset', delayed) or earliest))
if bad then return bad end
first_due = earliest[2] or ''

local own  -- the tasks whose jobs the caller takes, as keys; nil for all
if only ~= '' then
  own = {}
  for _, task in ipairs(cjson.decode(only)) do own[task] = true end  -- names, not a payload
end

-- Nothing is paused or held in most queues, which one command shows.
local is_plain = redis.call('EXISTS', paused, paused_tasks, held, gates) == 0 and not own
local has_gates, has_lanes, more_fields = false, false, {}
if not is_plain then
  -- One command for all: 1 for `paused`, 2 for `paused_tasks`, 4 for `held`, 8 for `gates`.
  local found = redis.call('EXISTS', paused, paused_tasks, paused_tasks, held, held, held, held, gates, gates, gates,
    gates, gates, gates, gates, gates)
  if found % 2 == 1 then return {'PAUSED', stamp, '', 0} end
  local has_paused, has_held, knows_gates = found % 4 >= 2, found % 8 >= 4, found >= 8
  bad = (has_held and (wrong_type('zset', held) or wrong_type('hash', lanes))) or (has_paused and wrong_type('hash', paused_tasks))
    or (knows_gates and wrong_type('hash', gates))
  if bad then return bad end
  -- Without limits of the queue itself, gates that are full or have no jobs concern no claim.
  has_gates = (knows_gates or has_held) and redis.call('EXISTS', open_gates, resting) > 0
    or knows_gates and redis.call('HEXISTS', gates, '') == 1
  has_lanes = own or has_paused or (has_held and (not knows_gates or redis.call('HEXISTS', lanes, 'made') == 1))
  if knows_gates or has_gates then more_fields = {'gate', 'key', 'retry_at_ms'} end
  is_plain = not (has_held or has_gates or has_lanes)
end
local may_have_gates = more_fields[1] ~= nil
-- Whether only the jobs in `pending` concern this claim. Then nothing is written before they have been looked at.
local is_quiet = is_plain and first_due == ''
if not is_quiet then
  bad = wrong_type('list', failed, broken)
  if bad then return bad end
end

local ids, taken, passed_over, unfit, strays = {}, {}, {}, {}, {}  -- ids to take, and their jobs; then the ids not taken
local expired, to_hold, to_enter, from_lanes = {}, {}, {}, {}
local gate_of_taken, moved, others = {}, {}, {}  -- id -> "GATE KEY"; ids that moved to another lane; tasks
local seen, bytes_taken, bytes_held, looked_at = {}, 0, 0, 0

local look  -- sorts an entry into these tables; below
local closed_task, is_task_closed_to_all, look_at_lanes, hold_and_tidy, wake_lanes  -- if jobs of tasks are held, or may have to be
local load_gates, enter_gates, serve_gates, write_starts, finish_gates  -- if there are gates

-- Lua makes the functions of a script again in each call. So those that only some claims need are defined in the blocks
-- of these cases: with all of them, a claim took half as long again.
if not is_plain or may_have_gates then
  --@include lanes
  load_gates = function()
    --@include gates
    --@include rouse
    --@include queue_limits
    --@include claim_gates
    local damage = wrong_type('hash', gate_turns) or wrong_type('zset', open_gates, resting, gate_holds)
    if damage then return damage end
    local wanted, queue, present, plain_tag = limit, gate_of(''), nil, nil
    enter_gates = enter
    local may_rouse_more = rouse(MOST_ROUSED)

    serve_gates = function(serve_plain)
      if queue.concurrency then limit = math.min(limit, queue.concurrency - redis.call('LLEN', processing)) end
      if queue.rates[1] then limit = math.min(limit, starts_allowed(queue.rates, tats_of_gate(queue))) end
      if limit <= 0 then return end
      present, plain_tag = serve_all((look_at_lanes or redis.call('LLEN', pending) > 0) and function(quota)
        local whole_limit, before = limit, #ids
        limit = before + quota
        serve_plain()
        look_at_lanes, limit = nil, whole_limit  -- the lanes of tasks are looked at once
        return #ids - before
      end)
    end

    write_starts = function()
      note_running()
      if queue.rates[1] and #ids > 0 then
        local words = {}
        charge(queue.rates, tats_of_gate(queue), '', #ids, words)
        redis.call('ZADD', queue.tats, unpack(words))
      end
    end

    -- Returns whether gates have more jobs for the caller, whether the queue is full, and a new earliest instant of `resting`.
    finish_gates = function()
      if #from_lanes > 0 and not hold_and_tidy then redis.call('ZREM', held, unpack(from_lanes)) end
      if present then settle_gates(present, plain_tag) end
      opened = false
      enter(to_enter)  -- last: what was read of the lanes is no longer true then
      local has_entered = opened
      local at = queue.rates[1] and rate_ends(queue.rates, tats_of_gate(queue))
      if at then rest({at, ''}) end
      local is_full = is_queue_full()
      local has_more = (#ids >= math.min(wanted, most) or is_cut or has_entered) and redis.call('ZCARD', open_gates) > 0
      return (has_more or may_rouse_more) and not is_full, is_full, close_gates(), queue.concurrency and ' '
    end
  end
  if has_gates then
    bad = load_gates()
    if bad then return bad end
  end
  if has_lanes then
    --@include task_of
    --@include paused_tasks
    --@include hold
    --@include open_lanes
    --@include wake_lane
    local open  -- lanes to take jobs from

    local function is_open(task) return (not own or own[task]) and not is_task_paused(task) end

    -- The task of a job that the caller may not take now, or nil.
    closed_task = function(payload)
      local task = payload and (task_of(payload) or own and '')
      return task and not is_open(task) and task
    end
    is_task_closed_to_all = is_task_paused

    local function look_at_lane(number)
      local page = in_lane(number, limit - #ids)
      for n = 1, #page, 2 do
        if #ids >= limit or #passed_over >= MOST_PASSED_OVER or look(page[n], true) ~= true then return end
        if not moved[page[n]] then from_lanes[#from_lanes + 1] = page[n] end
      end
    end

    -- The jobs in a lane are older than those of its task in `pending`.
    look_at_lanes = function()
      local first = whole(redis.call('HGET', lanes, 'first'))
      if first > 0 then look_at_lane(first) else first = nil end
      open = open_lanes(now % (whole(redis.call('HGET', lanes, 'made')) + 1), is_open)
      for n = 1, #open do
        local number = open[(now + n) % #open + 1].number
        if number ~= first then look_at_lane(number) end
      end
    end

    -- A job that was released or reclaimed is the next in line.
    hold_and_tidy = function()
      for _, entry in ipairs(to_hold) do
        local move = redis.call('HGET', jobs .. entry[1], 'settled_move')
        entry[3] = move == 'release' or move == 'reclaim'
      end
      hold(to_hold)
      if #from_lanes > 0 then
        redis.call('ZREM', held, unpack(from_lanes))
        tidy_lanes(open)
      end
    end

    -- Returns whether lanes have more jobs for the caller.
    wake_lanes = function()
      local has_more = false
      for _, lane in ipairs(open) do
        if #in_lane(lane.number, 1) > 0 then
          has_more = true
          wake_lane(lane.task)
        end
      end
      -- The marker that the caller took may have been meant for jobs that it does not take.
      for _, lane in ipairs(own and ready_lanes() or {}) do wake_lane(lane.task) end
      for task in pairs(others) do wake_lane(task) end
      return has_more
    end
  end
end

if is_due() then
  --@include promote
  promote_due(promote_limit)
end

-- Move the first passed-over suspect from `delayed` to the front of `pending`, unless it was rescheduled since.
if allowed == 1 and next_due() ~= '' then
  local passed = redis.pcall('ZRANGE', suspects, 0, 9, 'WITHSCORES')
  for n = 1, passed.err and 0 or #passed, 2 do
    local id, due = passed[n], passed[n + 1]
    local is_there = redis.call('ZSCORE', delayed, id) == due
    redis.call('ZREM', suspects, id)
    if is_there then
      local job = read_job(id, 'status', 'payload', unpack(more_fields))
      if job and job[3] and enter_gates then enter_gates({{id, job[3], job[4] or ''}}) else redis.call('RPUSH', pending, id) end
      if job then
        redis.call('HSET', jobs .. id, 'status', 'pending', 'run_at_ms', stamp, 'promoted_at_ms', stamp)
      end
      redis.call('ZREM', delayed, id)
      first_due = nil
      add_to_total('promoted_total', 1)
      break
    end
  end
end

local processes, all_held, own_held = unpack(ARGV, share_start)
if processes then
  local waiting = redis.call('LLEN', pending) + (is_plain and 0 or redis.call('ZCARD', held))
  local share = math.floor((waiting + all_held) / processes) - own_held
  limit = math.max(1, math.min(limit, share))
end

-- Only a job that is nowhere else may run. A missing or unknown status comes from another producer's job.
local function is_stray(id, status)
  if FINISHED[status] then return true end
  if status == 'processing' then return is_processing(id) end
  if status == 'delayed' then return redis.call('ZSCORE', delayed, id) end
  return false
end

-- Returns true, or why the entry stays where it is: 'full' (its payload no longer fits), 'paused' or 'other' (its task is
-- paused, or not one of the caller's), 'suspect', 'early' (a retry that was put in order before its gate stopped keeping it). `is_held`: it comes from a lane; `gate` and `entry`: from that of a key of a gate.
look = function(id, is_held, gate, entry)
  local job, reason = read_job(id, 'status', 'payload', 'attempts', 'max_attempts', 'backoff', 'timeout_ms', 'crashes',
    'enqueued_at_ms', 'adopted_token', 'waiter', 'run_at_ms', 'trace', 'unknown_since_ms', 'expires', 'headers',
    'progress', 'run', unpack(more_fields))
  local closed = closed_task and job and closed_task(job[2])
  if not job then
    unfit[#unfit + 1] = {id, nil, reason}
  elseif seen[id] or (job[1] ~= 'pending' and is_stray(id, job[1])) or not (is_plain or is_held or not redis.call('ZSCORE', held, id)) then
    strays[#strays + 1] = is_held and '' or id
  elseif not job[2] then
    unfit[#unfit + 1] = {id, job}
  elseif job[18] and not (gate and job[18] == gate.name and (job[19] or '') == entry.key) then
    local move = redis.call('HGET', jobs .. id, 'settled_move')
    to_enter[#to_enter + 1] = {id, job[18], job[19] or '', move == 'release' or move == 'reclaim'}
    seen[id], moved[id] = true, true
    return true
  elseif gate and job[20] and whole(job[20]) > now then
    entry.early = whole(job[20])
    return 'early'
  elseif closed and gate then
    if is_task_closed_to_all(closed) then return 'paused' end
    others[closed] = true
    return 'other'
  elseif closed then
    bytes_held = bytes_held + #job[2]
    if is_held or (bytes_held > bytes and #to_hold > 0) then return 'full' end
    to_hold[#to_hold + 1] = {id, closed}
  elseif job[14] and whole(job[3]) == 0 and now >= (expires_at(job[14], job[8]) or math.huge) then
    expired[#expired + 1] = {id, job}  -- it should have begun by now, and no other program's worker has begun it
  elseif bytes_taken + #job[2] > bytes and #ids > 0 then
    return 'full'
  elseif allowed < 0 and (whole(job[3]) > 0 or whole(job[4]) == 1) then
    return 'full'  -- it stays, and the caller claims again
  elseif job[7] and whole(job[7]) >= 2 and allowed <= 0 then
    if gate and gate.serial then return 'suspect' end  -- nothing overtakes it
    passed_over[#passed_over + 1] = id
  else
    if job[7] and whole(job[7]) >= 2 then allowed = 0 end
    bytes_taken = bytes_taken + #job[2]
    ids[#ids + 1], taken[#taken + 1] = id, job
    if gate then gate_of_taken[id] = entry.label end
  end
  seen[id] = true
  if gate then from_lanes[#from_lanes + 1] = id end
  return true
end

local function look_at_page()
  local length = is_plain and limit - #ids or math.max(PAGE, limit - #ids)
  local page = redis.call('LRANGE', pending, -looked_at - length, -looked_at - 1)
  for n = #page, 1, -1 do
    if #ids >= limit or #passed_over >= MOST_PASSED_OVER or look(page[n]) ~= true then return false end
    looked_at = looked_at + 1
  end
  return #page > 0 and #ids < limit and looked_at < limit + (is_plain and MOST_DROPPED or MOST_HELD)
end

local function look_at_plain()
  if look_at_lanes then look_at_lanes() end
  while look_at_page() do end
end

if serve_gates then serve_gates(look_at_plain) else look_at_plain() end
-- Gates that start nothing now concern a claim only if it meets a job that belongs to one.
if #to_enter > 0 and not finish_gates then
  bad = (is_quiet and wrong_type('list', failed, broken)) or load_gates()
  if bad then return bad end
  is_quiet = false
  enter_gates(to_enter)
  for _, entry in ipairs(to_enter) do seen[entry[1]], moved[entry[1]] = nil, nil end
  to_enter = {}
  serve_gates(look_at_plain)
end

if is_quiet and #unfit > 0 then
  bad = wrong_type('list', failed, broken)
  if bad then return bad end
end

-- An entry is added elsewhere before it is removed, so that an error in between loses no job: a second entry in
-- `pending` is dropped later, and an entry of `processing` without a lease is adopted.
local drop_strays
if #unfit + #expired + #strays > 0 then
  --@include events
  --@include log
  --@include tombstone
  --@include note_met
  --@include trim
  --@include retention
  --@include group_end
  local function expire_failed(id)
    expire_record(jobs .. id, kept_for(redis.call('HGET', jobs .. id, 'failed_ttl_ms'), '', failed_ttl_ms))
  end
  local function tell_its_group(id, text)
    local group = redis.call('HGET', jobs .. id, 'group')
    if group then tell_group(group, id, false, text) end
  end

  for _, entry in ipairs(unfit) do
    local id, job, reason = unpack(entry, 1, 3)
    if not job then
      to_broken(id, reason)
    else
      local text = 'unreadable payload: there is none'
      tell_its_group(id, text)
      redis.call('LPUSH', processing, id)  -- if an error ends the script here, the reclaimer repairs it
      redis.call('HSET', jobs .. id, 'status', 'failed', 'settled_move', 'refuse', 'last_error', text, 'last_error_at_ms', stamp)
      redis.call('HDEL', jobs .. id, 'claim_token')
      expire_failed(id)
      redis.call('LPUSH', failed, id)
      redis.call('LREM', processing, 1, id)
      add_to_total('failed_total', 1)
      publish_event(id, 'failed', whole(job[3]), job[10])
      write_log('refuse', id, whole(job[3]))
      trim(failed, 'failed', 'last_error_at_ms', failed_history, min_keep_ms, 20)
    end
  end

  for _, entry in ipairs(expired) do
    local id, job = unpack(entry)
    tell_its_group(id, 'expired')
    redis.call('LPUSH', processing, id)  -- as above
    redis.call('HSET', jobs .. id, 'status', 'cancelled', 'cancelled_at_ms', stamp, 'cancel_reason', 'expired')
    redis.call('HDEL', jobs .. id, 'claim_token', 'waiter')
    redis.call('PERSIST', jobs .. id)
    expire_failed(id)
    local length = redis.pcall('LPUSH', cancelled, id)
    add_to_total('cancelled_total', 1)
    publish_event(id, 'cancelled', 0, job[10], ',"reason":"expired"')
    write_log('cancelled', id, 0)
    -- If `cancelled` is not a list, the entry stays in `processing`, and the reclaimer moves it once it is a list again.
    -- A check of its type before the first write would cost every claim a command.
    if type(length) == 'number' then
      redis.call('LREM', processing, 1, id)
      trim(cancelled, 'cancelled', 'cancelled_at_ms', failed_history, min_keep_ms, 20, length)
    end
  end

  drop_strays = function()
    add_to_total('strays_total', #strays)
    for _, id in ipairs(strays) do
      local entry_left, tombstone, status = unpack(redis.call('HMGET', jobs .. id, 'entry_left', 'tombstone', 'status'))
      if id ~= '' and entry_left then
        note_met(jobs .. id, entry_left, tombstone)
        if status == 'cancelled' and not tombstone and whole(entry_left) <= 1 then expire_failed(id) end
      end
    end
  end
end
if #passed_over > 0 then
  local last = redis.pcall('ZRANGE', suspects, -1, -1, 'WITHSCORES')
  local due = math.max(now + REST, tonumber(last[2] or 0) or 0)
  for _, id in ipairs(passed_over) do
    due = due + SPACING
    redis.call('ZADD', delayed, due, id)
    redis.pcall('ZADD', suspects, due, id)
    redis.call('HSET', jobs .. id, 'status', 'delayed', 'run_at_ms', digits(due))
  end
  redis.pcall('PEXPIRE', suspects, digits(due - now + KEPT))  -- jobs that are moved in other ways leave their entries behind
  first_due = nil
end
local gates_have_more, is_full, earlier, gate_mark
if write_starts then write_starts() end
if looked_at == 1 and #ids == 1 and not finish_gates and #from_lanes == 0 then
  redis.call('LMOVE', pending, processing, 'RIGHT', 'LEFT')
else
  if #ids > 0 then redis.call('LPUSH', processing, unpack(ids)) end
  if hold_and_tidy then hold_and_tidy() end
  if finish_gates then gates_have_more, is_full, earlier, gate_mark = finish_gates() end
  if looked_at > 0 then redis.call('RPOP', pending, looked_at) end
end
if drop_strays then drop_strays() end

local reply, ends, lease_end = {'OK', stamp, '', 0}, {}, digits(now + visibility_ms)
for n, id in ipairs(ids) do
  local job, key, token = taken[n], jobs .. id, request .. '.' .. n
  local attempts = job[3] == '0' and '1' or digits(whole(job[3]) + 1)
  if job[17] then redis.call('HDEL', key, 'waits') end  -- first: a message must not wake a run that waits for something else
  redis.call('HSET', key, 'status', 'processing', 'attempts', attempts, 'claim_token', token, 'claimed_at_ms', stamp,
    'started_at_ms', stamp, 'worker', worker)
  redis.call('PERSIST', key)
  if job[9] or job[14] then redis.call('HDEL', key, 'adopted_token', 'expires') end  -- a job that has begun can't expire
  if job[16] then redis.call('HDEL', key, 'progress', 'meta') end  -- of an earlier attempt
  ends[n * 2 - 1], ends[n * 2] = lease_end, id
  reply[n + 4] = claimed(id, job[2], attempts, token, job[4], job[5], job[6], job[7], job[8], job[11],
    job[12], job[13], job[15], gate_of_taken[id] or gate_mark, job[17])
end
if #ids > 0 then redis.call('ZADD', leases, unpack(ends)) end

-- Another process may take one of the suspects. They are no longer in `pending`, so processes do not wake each other
-- forever.
if #passed_over > 0 then
  set_wake()
  reply[4] = 2
end
local left = is_quiet and lengths[pending] - looked_at or redis.call('LLEN', pending)
local has_more = not is_full and left > 0 or gates_have_more
if has_more then set_wake() end
if wake_lanes then has_more = wake_lanes() or has_more end
if has_more then reply[4] = reply[4] + 1 end
reply[3] = next_due()
if finish_gates then
  local at = redis.call('ZRANGE', resting, 0, 0, 'WITHSCORES')[2]
  if at and at ~= 'inf' and (reply[3] == '' or tonumber(at) < tonumber(reply[3])) then reply[3] = at end
  if earlier then redis.pcall('PUBLISH', due_channel, digits(earlier)) end
end
-- A marker without a job may come from another producer that delayed one; the promoter must know when it is due.
if #ids == 0 and reply[3] ~= '' then redis.pcall('PUBLISH', due_channel, reply[3]) end
return reply
