--[[
End attempts (complete, retry, fail, undo, snooze, release or suspend), each only for the worker that holds the job.

Nothing is written if the token is not the job's, or the job is not in `processing`. A job that was asked to stop ends in
`cancelled`, unless it completed. A snooze with a text comes from a worker that lacks the job's task; the record keeps
the time of the first such snooze until a worker that has the task ends an attempt. The record of a finished job may
expire; one that is not to be kept at all is deleted at the end. The longer `processing`, the fewer jobs a call takes,
because it searches the list for each. Of jobs that belong to groups it takes at most 40: each of them may also turn an item
into a job.

A suspended run is due at the first of its instants, and its attempt does not count. The boxes are looked at in this script: a
message that arrived before it wakes the run here, one that arrives after it in send.lua. A run is due at its deadline at the
latest. When a run completes, its large memos lose their values. `undo` is a failure: a run that has open undos goes back, to
undo what it has done, before it fails; so does one that was asked to stop, before it is cancelled.

A job that belongs to a gate leaves its place there, and its key and gate are looked at again; see shared/gates.lua. If
the keys of the gate are in order, a job that is to be retried stays first in its lane instead of going to `delayed`. A
limited job goes back to the front of its lane, as a released one does, and its key or gate is held for the delay.

KEYS  processing (list), leases (zset), completed (list), stats (hash), log (stream), groups (zset)
RARE  pending (list), delayed (zset), failed (list), cancelled (list), wake (zset), paused (string), promoter (string),
      held (zset), lanes (hash), gates (hash), open_gates (zset), resting (zset), gate_holds (zset), gate_turns (hash),
      gate_keys (prefix), group_keys (prefix), undos (zset), asleep (hash)
ARGV  prefix, jobs, clock, events, log_size, due_channel, completed_ttl_ms, failed_ttl_ms, completed_history (number),
      failed_history (number), min_keep_ms (number)
      claims (flag): the caller claims right after this, so it need not wake a worker for places that become free
      endings...: per job: complete | retry | fail | undo | snooze | release | limit | suspend, id, token, delay in ms, text
        (result, error or why it can't be run; for a limited job 'doubles' if the delay doubles each time in a row; for a
        suspended run its waits as a JSON array, see shared/suspend.lua), note (what was wrong with the result, or the text
        in short; for a limited job 'key' or 'gate'; for a suspended run `run` as it is if nothing was recorded before), traceback or '', its task's completed_ttl or, unless it completes, failed_ttl in ms, or '';
        "GATE KEY" of a job that belongs to a gate, " " for another one of a queue with limits, or ''
Returns  per job: OK | DUPLICATE (this token has already ended the job by this move) | LOST | AGAIN (send it again)
]]
local MOST_RELEASES, MINUTE, LONGEST_LIMIT, MOST_SHORTENED, MOST_MEMBERS = 5, '60000', 60000, 262144, 25
local LAST_INSTANT = 253402300799999
--@include clock
--@include checks
--@include numbers
--@include totals
--@include events
--@include log
--@include take_claimed
--@include tombstone
--@include trim
--@include completed
--@include retention
local only_successes, look_at_gates = true, false
for i = endings_start, #ARGV, 9 do
  if ARGV[i] ~= 'complete' then only_successes = false end
  if ARGV[i + 8] ~= '' then look_at_gates = true end
end
-- Whether nothing but successes of jobs without a gate is to be recorded, and there are no groups.
local is_plain = only_successes and not look_at_gates and redis.pcall('ZCARD', groups) == 0
local bad = wrong_type('list', processing, completed) or wrong_type('zset', leases)
  or (not is_plain and (wrong_type('list', pending, failed, cancelled) or wrong_type('zset', delayed)))
if bad then return bad end
size = lengths[processing]

local earliest = LAST_INSTANT + 1
local ended = {}  -- list or zset -> ids
local counts = {}
local returned = {}  -- {id, started_at_ms, token} of those that were released
local dropped = {}  -- {history, id} of those that are not kept
local job, gate, gate_key  -- fields of the current job, as read below; its gate and key, if it has one
local gate_of_key, left, entered, holds = nil, {}, {}, {}  -- what changes in gates
local head  -- of `delayed`, before this script changes it
local allowance = math.max(1, math.floor(200000 / (size + 200)))  -- the most attempts to end
local shortened = 0  -- bytes of the records of runs that have completed
local tell, go_on_with_others  -- if a job belongs to a group

local function arrive(place, id, outcome)
  local ids = ended[place] or {}
  ids[#ids + 1] = id
  ended[place] = ids
  counts[outcome] = (counts[outcome] or 0) + 1
end

-- For a job that completed at its first attempt, the record already says what the line of history would. And a value as
-- long as that line would make Redis store the hash in a form that takes three times the memory.
local function write(key, move, token, outcome, note, ...)
  if job[7] or move ~= 'complete' then
    --@include attempt
    local worker = job[11] or redis.call('HGET', key, 'worker')
    local history = with_attempt(job[7], whole(job[4]), worker, whole(job[5]), outcome, note)
    redis.call('HSET', key, 'history', history, 'settled_token', token, 'settled_move', move, ...)
  else
    redis.call('HSET', key, 'settled_token', token, 'settled_move', move, ...)
  end
  redis.call('HDEL', key, 'claim_token', 'unknown_since_ms')
  if job[3] then redis.call('HDEL', key, 'stop') end
end

local function finish(id, key, place, attempts, kept_ms, note)
  if job[6] then redis.call('HDEL', key, 'waiter') end
  expire_record(key, kept_ms == '0' and MINUTE or kept_ms)
  arrive(place, id, place)
  if kept_ms == '0' then dropped[#dropped + 1] = {place, id} end
  publish_event(id, place, attempts, job[6], note)
  write_log(place, id, attempts)
end

-- Lua makes the functions of a script again in each call, so those that successes do not need are in this block.
local settle_otherwise
if not only_successes then
  -- How many of the last attempts ended because a service refused too many calls.
  local function limited_in_a_row(history)
    local count = 0
    for line in string.gmatch(history or '', '[^\n]+') do
      count = string.find(line, '"outcome":"limited"', 1, true) and count + 1 or 0
    end
    return count
  end

  --@include undo

  -- End an attempt in another way than by its success.
  settle_otherwise = function(said, id, key, token, delay, text, note, ttl)
    local run = job[9] or (said == 'suspend' and note)
    local move, stops, left_open, undoing = said == 'undo' and 'fail' or said, job[3], open_undos(run), undoing_of(run)
    if undoing then
      if stops and left_open > 0 then move = 'release' end  -- it continues
      stops = undoing == '2' and left_open == 0 and move == 'fail'
    elseif left_open > 0 and (stops or said == 'undo') then
      move = 'undo'
    end
    local deadline = run and tonumber(string.match(run, 'deadline=(%d+)'))
    local attempts, due = whole(job[4]), math.min(now + delay, deadline or LAST_INSTANT, LAST_INSTANT)

    local function go_back()
      if gate then
        entered[#entered + 1] = {id, gate.name, gate_key, true}
      else
        returned[#returned + 1] = {id, whole(job[5]), token}
      end
    end

    local function delay_it()
      head = head or tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or LAST_INSTANT + 1)
      redis.call('ZADD', delayed, due, id)
      earliest = math.min(earliest, due)
    end

    -- Delay the job until it is due. Returns true if its key is in order: the job then waits at the front of its lane.
    local function keeps_its_turn()
      local is_in_order = gate and gate.serial
      if is_in_order then
        entered[#entered + 1] = {id, gate.name, gate_key, true}
        redis.call('HSET', key, 'retry_at_ms', digits(due))
      else
        delay_it()
      end
      return is_in_order
    end

    if job[10] and move ~= 'undo' and (stops or move == 'fail') then tell(job[10], id, false, stops and 'cancelled' or note) end
    if move == 'undo' then
      write(key, said, token, stops and 'cancelled' or 'failed', note, 'status', 'pending', 'run_at_ms', stamp, 'attempts', 0,
        'run', to_undo(run, stops), 'undoing', stops and '' or text, unpack(stops and {} or {'last_error', text, 'last_error_at_ms', stamp}))
      redis.call('HDEL', key, 'crashes', 'released')
      go_back()
      publish_event(id, 'undoing', attempts, nil, ',"error":' .. cjson.encode(note))
      write_log('undo', id, attempts)
    elseif stops then
      write(key, said, token, 'cancelled', note, 'status', 'cancelled', 'cancelled_at_ms', stamp)
      finish(id, key, 'cancelled', attempts, kept_for(job[8], ttl, failed_ttl_ms))
    elseif move == 'fail' then
      write(key, said, token, 'failed', note, 'status', 'failed', 'last_error', text, 'last_error_at_ms', stamp,
        unpack(left_open > 0 and {'run', without(run, 'left') .. ' left=1'} or {}))
      finish(id, key, 'failed', attempts, kept_for(job[8], ttl, failed_ttl_ms), ',"error":' .. cjson.encode(note))
    elseif move == 'retry' then
      write(key, said, token, 'retry', note, 'status', keeps_its_turn() and 'pending' or 'delayed', 'last_error', text, 'last_error_at_ms', stamp,
        'run_at_ms', due)
      arrive('delayed', id, 'retried')
      publish_event(id, 'retry', attempts, nil, ',"run_at_ms":' .. digits(due) .. ',"error":' .. cjson.encode(note))
    elseif move == 'snooze' then
      if text ~= '' then  -- no attempt was made, so none is added to the history
        local since = redis.call('HGET', key, 'unknown_since_ms') or stamp
        redis.call('HSET', key, 'settled_token', token, 'settled_move', 'snooze', 'status', keeps_its_turn() and 'pending' or 'delayed', 'run_at_ms', due,
          'attempts', math.max(0, attempts - 1), 'unknown_since_ms', since)
        redis.call('HDEL', key, 'claim_token', 'stop')
      else
        write(key, said, token, 'snoozed', '', 'status', keeps_its_turn() and 'pending' or 'delayed', 'run_at_ms', due, 'attempts', math.max(0, attempts - 1))
      end
      arrive('delayed', id, 'snoozed')
      local why = note ~= '' and ',"error":' .. cjson.encode(note) or ''
      publish_event(id, 'snoozed', attempts - 1, nil, ',"run_at_ms":' .. digits(due) .. why)
    elseif move == 'suspend' then
      --@include inbox
      --@include suspend
      local waits = cjson.decode(text)  -- names and instants, not a payload
      due = math.max(now, math.min(due_for(key, waits), deadline or LAST_INSTANT))
      if due > now then delay_it() else go_back() end
      -- What an attempt did is in the memos, so the history has no line of it.
      redis.call('HSET', key, 'settled_token', token, 'settled_move', said, 'status', due > now and 'delayed' or 'pending', 'run_at_ms', digits(due),
        'attempts', math.max(0, attempts - 1), 'waits', text, 'run', run)
      redis.call('HDEL', key, 'claim_token', 'unknown_since_ms')
      counts.suspended = (counts.suspended or 0) + 1
      publish_event(id, 'suspended', math.max(0, attempts - 1), nil, ',"run_at_ms":' .. digits(due))
    elseif move == 'limit' and gate then
      if text == 'doubles' then due = now + math.min(LONGEST_LIMIT, delay * 2 ^ limited_in_a_row(job[7])) end
      write(key, said, token, 'limited', '', 'status', 'pending', 'attempts', math.max(0, attempts - 1))
      entered[#entered + 1] = {id, gate.name, gate_key, true}
      holds[note == 'gate' and gate.name or gate.name .. ' ' .. gate_key] = due
      counts.limited = (counts.limited or 0) + 1
      publish_event(id, 'limited', attempts - 1, nil, ',"run_at_ms":' .. digits(due))
    else
      local released = whole(redis.call('HGET', key, 'released'))
      local given_back = released < MOST_RELEASES and math.max(0, attempts - 1) or attempts
      write(key, said, token, 'released', '', 'status', 'pending', 'attempts', given_back, 'released', released + 1)
      go_back()
      counts.released = (counts.released or 0) + 1
      publish_event(id, 'released', given_back)
    end
  end
end

local function settle(move, id, token, delay, text, note, traceback, ttl)
  local key = jobs .. id
  take_claimed(id, job[5])
  if traceback ~= '' then redis.call('HSET', key, 'traceback', traceback) end
  if move ~= 'complete' then return settle_otherwise(move, id, key, token, delay, text, note, ttl) end
  if job[10] then tell(job[10], id, true, text, note) end  -- before a status says that the job has ended
  write(key, move, token, 'completed', '', 'status', 'completed', 'completed_at_ms', stamp, 'result', text)
  if note ~= '' then redis.call('HSET', key, 'result_error', note) end
  if job[9] and string.find(job[9], ' undos=[1-9]') then  -- what was done stays done
    redis.call('HSET', key, 'run', (string.gsub(job[9], ' undos=%d+', '')))
    redis.pcall('ZREM', undos, id)
  end
  if job[9] and string.find(job[9], ' large=[1-9]') then
    --@include shorten
    shorten_memos(id)
    -- Reading long records takes time: the next call settles the others.
    shortened = shortened + whole(string.match(job[9], ' bytes=(%d+)'))
    if shortened > MOST_SHORTENED then allowance = 0 end
  end
  finish(id, key, 'completed', job[4] == '1' and '1' or digits(whole(job[4])), kept_for(job[8], ttl, completed_ttl_ms))
end

local words, gone, more_fields = {}, {}, only_successes and {} or {'worker'}  -- which a success does not need
if look_at_gates then
  --@include lanes
  --@include gates
  --@include queue_limits
  bad = wrong_type('hash', gates, lanes, gate_turns) or wrong_type('zset', held, open_gates, resting, gate_holds)
  if bad then return bad end
  gate_of_key = function(text)
    local name, found_key = string.match(text, '^(%S+) (.*)$')
    if name then return gate_of(name), found_key end
  end

  look_at_gates = function(wake_worker, announce)
    for name, until_ms in pairs(holds) do
      has_holds = true
      redis.call('ZADD', gate_holds, 'GT', digits(until_ms), name)
      if not string.find(name, ' ', 1, true) then
        rest({until_ms, name})
        redis.call('ZREM', open_gates, name)  -- other keys of the gate may be ready
      end
    end
    enter(entered)
    leave(left)
    local queue, at = gate_of(''), close_gates()
    if queue.concurrency then opened = true end
    if opened and not claims and not is_queue_full() then wake_worker() end
    if at then announce(at) end
  end
end

for i = endings_start, #ARGV, 9 do
  local move, id, token = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local word = 'LOST'
  if #gone >= allowance then
    word = 'AGAIN'
  elseif token ~= '' then
    job = redis.pcall('HMGET', jobs .. id, 'status', 'claim_token', 'stop', 'attempts', 'started_at_ms', 'waiter',
      'history', move == 'complete' and 'completed_ttl_ms' or 'failed_ttl_ms', 'run', 'group', unpack(more_fields))
    if not job.err and job[1] == 'processing' and job[2] == token then
      gate, gate_key = nil, nil
      if ARGV[i + 8] ~= '' then
        gate, gate_key = gate_of_key(ARGV[i + 8])
        if gate then left[#left + 1] = {id, gate.name, gate_key} end
      end
      if job[10] and not tell then
        allowance = math.min(allowance, MOST_MEMBERS)
        --@include group_end
        --@include wake_run
        --@include group_next
        tell, go_on_with_others = tell_group, go_on_with_groups
      end
      settle(move, id, token, ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6], ARGV[i + 7])
      gone[#gone + 1] = id
      word = 'OK'
    elseif not job.err then
      local settled = redis.call('HMGET', jobs .. id, 'settled_token', 'settled_move')
      if settled[1] == token and settled[2] == move then word = 'DUPLICATE' end
    end
  end
  words[#words + 1] = word
end
if #gone == 0 then return words end

local length = ended.completed and redis.call('LPUSH', completed, unpack(ended.completed))
if ended.failed then redis.call('LPUSH', failed, unpack(ended.failed)) end
if ended.cancelled then redis.call('LPUSH', cancelled, unpack(ended.cancelled)) end
if head or #returned > 0 or look_at_gates or tell then
  --@include wake
  --@include due
  --@include push_back
  push_back(returned)
  if head and earliest < head then announce_due(earliest) end
  if look_at_gates then look_at_gates(set_wake, announce_due) end
  if tell then
    local has_more, has_made = go_on_with_others()
    if has_made and not claims then set_wake() end
    if has_more then announce_due(now) end
  end
end
-- Leases are removed last: if an error ends the script earlier, the reclaimer finds the job by its lease and puts it back.
redis.call('ZREM', leases, unpack(gone))
for _, entry in ipairs(dropped) do
  delete_record(jobs .. entry[2], redis.call('HGET', jobs .. entry[2], 'entry_left'))
  if entry[1] == 'completed' then
    length = length - redis.call('LREM', completed, 1, entry[2])
  else
    redis.call('LREM', entry[1] == 'failed' and failed or cancelled, 1, entry[2])
  end
end
local budget = 2 * #gone + 10
if length then trim_completed(completed_history, min_keep_ms, budget, length) end
if ended.failed then trim(failed, 'failed', 'last_error_at_ms', failed_history, min_keep_ms, budget) end
if ended.cancelled then trim(cancelled, 'cancelled', 'cancelled_at_ms', failed_history, min_keep_ms, budget) end
for outcome, count in pairs(counts) do add_to_total(outcome .. '_total', count) end
return words
