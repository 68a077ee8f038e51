--[[
Reclaim jobs whose lease has ended, adopt claims without a lease, and trim the histories; one bounded pass.

What happens to a job depends on its list entry and its status together. From the second lost lease on, a job waits
before its next attempt, and the caller computes the wait. A job without a max_attempts or a failed_ttl of its own has its
task's, which the caller looks up, because only the caller reads payloads. A job that needs such a decision, and none was
sent, is left as it is and named in the reply.

Records of finished jobs expire, and the entries that they leave in the histories are removed. Usually they expire in the
order of the history, so the old end is looked at. Once a job had a ttl of its own, a page of each history is searched as
well, another one in each pass.

A run that has open undos goes back to undo what it has done, before it fails or is cancelled. Those that were ended without it,
by scripts of earlier releases, are named in the reply of a pass that begins with offset 0.

A job that belongs to a gate leaves its place there, and goes back to the front of its lane. Places whose job has no lease
any more, because its record vanished, are freed, and a page of the lanes is looked at in each pass; see shared/gates.lua.

KEYS  processing (list), leases (zset), pending (list), delayed (zset), completed (list), failed (list),
      cancelled (list), stats (hash), wake (zset), paused (string), log (stream), tasks (hash), held (zset), lanes (hash),
      gates (hash), resting (zset), gate_turns (hash), groups (zset), undos (zset)
RARE  broken (list), asleep (hash), promoter (string), open_gates (zset), gate_holds (zset)
ARGV  prefix, jobs, clock, events, log_size, due_channel, gate_keys, group_keys
      limit (number): the most leases to look at
      visibility_ms (number), max_attempts (number), completed_history (number), failed_history (number),
      failed_ttl_ms, min_keep_ms (number)
      offset (number): where in `processing` to look for claims without a lease; -1 to look only if there are any
      shorten (flag): the clock went back: shorten all leases that end after now + visibility, not only those of claims
        in the future
      looked_at (number): the last Redis time that the caller saw, ms, or ''. Leases that end later are left for the
        next pass, since the clock may have jumped
      knows_tasks (flag): whether the caller knows options of tasks that are not stored
      decided...: per job: id, attempts, max_attempts, wait in ms, its task's failed_ttl in ms or ''
Returns  {now, 1 if there is more to do, else 0, next offset or -1, completed records trimmed since the queue began, ms
         since the oldest kept record completed, 1 if memory is high, else 0, how many jobs were reclaimed, how many runs
         have something to undo, per reclaimed job its id and new state, per run its id, then per job that needs a decision: id, attempts, its own max_attempts or '', backoff
         or '', and payload}
]]
local PAGE, MOST_SEARCHED, FURTHEST, MOST_BYTES = 200, 10000, 100, 1048576
local MOST_TRIMMED, HISTORY_PAGE, HIGH_MEMORY, MOST_FIELDS = 200, 500, 0.8, 300
local LAST_INSTANT = 253402300799999
--@include clock
--@include checks
--@include numbers
--@include job
--@include totals
--@include wake
--@include due
--@include push_back
--@include broken
--@include events
--@include log
--@include attempt
--@include take_claimed
--@include tombstone
--@include trim
--@include forget_expired
--@include completed
--@include retention
--@include group_end
--@include undo
local bad = wrong_type('list', processing, pending, completed, failed, cancelled, broken) or wrong_type('zset', leases, delayed)
if bad then return bad end
local has_gates = redis.call('EXISTS', gates) == 1
if has_gates then
  bad = wrong_type('hash', gates, lanes, gate_turns) or wrong_type('zset', held, open_gates, resting, gate_holds)
  if bad then return bad end
end

local head = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or LAST_INSTANT + 1)
local earliest = LAST_INSTANT + 1
local decisions = {}
for i = decided_start, #ARGV, 5 do
  decisions[ARGV[i] .. ' ' .. ARGV[i + 1]] = {most = tonumber(ARGV[i + 2]), wait = tonumber(ARGV[i + 3]), ttl = ARGV[i + 4]}
end
local returned, taken_back, undecided, left, bytes = {}, {}, {}, 0, 0
local entered, left_gates, finish_gates, gate_of_job, note_running = {}, {}, nil, nil, nil  -- if the queue has gates
local written = redis.pcall('HLEN', tasks)
local has_tasks = knows_tasks or (type(written) == 'number' and written > 0)
allow_when_full(leases)

-- Duplicate entries of an id are searched for only if there are more entries than leases.
local in_flight = redis.call('LLEN', processing)
local entries = (in_flight > redis.call('ZCARD', leases) and in_flight <= MOST_SEARCHED) and 0 or -1

local gone = {}  -- leases to remove last: if an error ends this earlier, a lease without an entry shows that the job is lost
local HISTORIES = {completed = completed, failed = failed, cancelled = cancelled}
local HOUR = '3600000'
local RETURNS = {release = true, reclaim = true}  -- schedq's own moves that end in `pending`

local function take_entry(id, started)
  if entries < 0 then return take_claimed(id, started) end
  return redis.call('LREM', processing, entries, id)
end

local function drop(id)
  local dropped = take_entry(id, 0)
  redis.call('ZREM', leases, id)
  return dropped
end

-- Add a finished job to its history if it is missing there because an error cut schedq's own move short; another
-- program's job may have been trimmed. Returns whether it was added.
local function keep(id, job)
  local history = HISTORIES[job[1]]
  if not history or (job[1] ~= 'cancelled' and not job[14]) then return false end
  -- It would have been added recently, so only the newest entries are searched.
  if redis.call('LPOS', history, id, 'MAXLEN', MOST_SEARCHED) then return false end
  redis.call('HDEL', jobs .. id, 'claim_token', 'stop', 'waiter')
  redis.call('PERSIST', jobs .. id)
  local is_completed = job[1] == 'completed'
  expire_record(jobs .. id, kept_for(is_completed and job[17] or job[18], '', is_completed and HOUR or failed_ttl_ms))
  redis.call('LPUSH', history, id)
  return true
end

-- A job without an entry, although its status says that it waits: put it where it belongs; it loses no attempt. If
-- `pending` is too long to search, that is certain only after schedq's own moves; at worst a claim drops a duplicate.
local function put_back(id, job)
  local key = jobs .. id
  if redis.call('ZSCORE', delayed, id) then return end
  if job[1] == 'delayed' then
    local due = whole(job[15])
    redis.call('ZADD', delayed, due, id)
    earliest = math.min(earliest, due)
  elseif redis.call('LLEN', pending) <= MOST_SEARCHED or RETURNS[job[14]] or undoing_of(job[22]) or redis.call('ZSCORE', leases, id) == '0' then
    redis.call('HSET', key, 'status', 'pending')
    returned[#returned + 1] = {id, whole(job[9]), job[16]}
  else
    return
  end
  redis.call('HDEL', key, 'claim_token', 'adopted_token', 'stop')
  redis.call('PERSIST', key)
end

-- Whether a job is waiting or finished, so that its entry in `processing` is a duplicate.
local function is_waiting(id, status)
  if FINISHED[status] then return true end
  if status == 'processing' then return false end
  if status == 'delayed' then return redis.call('ZSCORE', delayed, id) end
  if redis.call('LLEN', pending) <= MOST_SEARCHED and redis.call('LPOS', pending, id) then return true end
  return type(redis.pcall('ZSCORE', held, id)) == 'string'
end

-- Let the caller decide. The reply then contains payloads, so anything beyond a megabyte is left for the next pass.
local function ask(id, attempts, own, backoff, payload)
  left = left + 1
  payload = payload or ''
  if left > 1 and bytes + #payload > MOST_BYTES then return end
  bytes = bytes + #payload
  for _, value in ipairs({id, digits(attempts), own and digits(own) or '', backoff or '', payload}) do
    undecided[#undecided + 1] = value
  end
end

-- The lease ended and the job is not finished: it goes back, or fails, or is cancelled if it was asked to stop.
local function take_back(id, key, job)
  local crashes, attempts = whole(job[5]) + 1, math.max(whole(job[3]), whole(job[5]) + 1)
  local run, undos, undoing = job[22], open_undos(job[22]), undoing_of(job[22])
  local stops = not undoing and job[7]
  local own = job[4] and whole(job[4]) > 0 and whole(job[4])
  local decided = decisions[id .. ' ' .. digits(attempts)]
  local most = own or (decided and decided.most) or max_attempts
  local is_open = (has_tasks and not (own and job[18])) or (crashes >= 2 and attempts < most)
  if is_open and not decided and not stops then return ask(id, attempts, own, job[6], job[2]) end
  local wait = decided and decided.wait or 0
  local becomes = {'status', 'pending'}
  if stops then
    becomes = {'status', 'cancelled', 'cancelled_at_ms', now}
  elseif attempts >= most then
    becomes = {'status', 'failed'}
  elseif crashes >= 2 then
    becomes = {'status', 'delayed', 'run_at_ms', now + wait}
  end
  local text, undoes = 'lease expired ' .. digits(crashes) .. (crashes == 1 and ' time' or ' times'), false
  if undos > 0 and FINISHED[becomes[2]] then
    undoes = not undoing
    becomes = undoes and {'status', 'pending', 'run', to_undo(run, stops), 'undoing', stops and '' or text}
      or {'status', 'failed', 'run', without(run, 'left') .. ' left=1'}
  end
  local gate, gate_key = nil, job[20] or ''
  if gate_of_job and job[19] then gate = gate_of_job(job[19]) end
  if gate and gate.serial and becomes[2] == 'delayed' then
    becomes = {'status', 'pending', 'run_at_ms', now + wait, 'retry_at_ms', now + wait}
  end
  local status = becomes[2]
  if gate then
    left_gates[#left_gates + 1] = {id, gate.name, gate_key}
    if status == 'pending' then entered[#entered + 1] = {id, gate.name, gate_key, true} end
  end
  take_entry(id, whole(job[9]))
  if job[21] and FINISHED[status] then tell_group(job[21], id, false, stops and 'cancelled' or text) end
  redis.call('HSET', key, 'settled_token', job[8] or '', 'settled_move', 'reclaim', 'crashes', undoes and 0 or crashes,
    'attempts', undoes and 0 or attempts, 'reclaimed_at_ms', now, 'last_error', text, 'last_error_at_ms', now, 'history',
    with_attempt(job[11], attempts, job[12], whole(job[9]), 'lost', text), unpack(becomes))
  redis.call('HDEL', key, 'claim_token', 'adopted_token', 'stop', 'unknown_since_ms')
  redis.call('PERSIST', key)
  if FINISHED[status] then expire_record(key, kept_for(job[18], decided and decided.ttl or '', failed_ttl_ms)) end
  add_to_total('reclaimed_total', 1)
  taken_back[#taken_back + 1] = {id, status}
  gone[#gone + 1] = id
  if status == 'cancelled' then
    redis.call('LPUSH', cancelled, id)
    add_to_total('cancelled_total', 1)
    publish_event(id, 'cancelled', attempts, job[10])
    write_log('cancelled', id, attempts)
  elseif status == 'failed' then
    redis.call('LPUSH', failed, id)
    add_to_total('failed_total', 1)
    publish_event(id, 'failed', attempts, job[10], ',"error":' .. cjson.encode(text))
    write_log('failed', id, attempts)
  elseif status == 'delayed' then
    redis.call('ZADD', delayed, now + wait, id)
    earliest = math.min(earliest, now + wait)
    publish_event(id, 'reclaimed', attempts)
  else
    if not gate then returned[#returned + 1] = {id, whole(job[9]), job[8]} end
    publish_event(id, undoes and 'undoing' or 'reclaimed', attempts)
    if undoes then write_log('undo', id, attempts) end
  end
end

local function read(id)
  return read_job(id, 'status', 'payload', 'attempts', 'max_attempts', 'crashes', 'backoff', 'stop', 'claim_token',
    'started_at_ms', 'waiter', 'history', 'worker', 'adopted_token', 'settled_move', 'run_at_ms', 'settled_token',
    'completed_ttl_ms', 'failed_ttl_ms', 'gate', 'key', 'group', 'run')
end

local function decide(id)
  local key = jobs .. id
  local job, reason = read(id)
  if not job then
    to_broken(id, reason)
    drop(id)
    return
  end
  local status = job[1]
  if job[21] and FINISHED[status] then  -- another program's worker has ended it
    local found = redis.call('HMGET', jobs .. id, 'result', 'last_error')
    tell_group(job[21], id, status == 'completed', status == 'completed' and (found[1] or 'null') or found[2] or status)
  end
  if is_waiting(id, status) then
    local kept = keep(id, job)
    local dropped = drop(id)
    if not kept then add_to_total('strays_total', dropped) end
  elseif status ~= 'processing' and not redis.call('LPOS', processing, id, 'RANK', -1) then
    put_back(id, job)
    gone[#gone + 1] = id
  elseif job[13] and (job[8] or '') ~= job[13] then
    -- Another program's worker has claimed it again since it was adopted.
    redis.call('HSET', key, 'adopted_token', job[8] or '')
    redis.call('ZADD', leases, now + visibility_ms, id)
  else
    take_back(id, key, job)
  end
end

-- A claim without a lease is from a worker written after the Redis guide, or its lease was damaged: give it one.
local function adopt(id, seen)
  if seen[id] then
    redis.call('LREM', processing, -1, id)
    add_to_total('strays_total', 1)
    return
  end
  seen[id] = true
  if redis.call('ZSCORE', leases, id) then return end
  local job, reason = read(id)
  if not job then
    to_broken(id, reason)
    drop(id)
  elseif is_waiting(id, job[1]) then
    local kept = keep(id, job)
    drop(id)
    if not kept then add_to_total('strays_total', 1) end
  else
    if note_running and job[19] then note_running(id, job[19], job[20] or '') end
    redis.call('HSET', jobs .. id, 'adopted_token', job[8] or '')
    redis.call('ZADD', leases, now + visibility_ms, id)
    add_to_total('adopted_total', 1)
  end
end

-- A lease from before the clock went back would last until the clock catches up. The process that noticed the jump may be
-- dead. A claim or renewal in the future shows the jump too, and spares leases that are long because of a longer
-- visibility_ms.
local furthest = {'+inf', '(' .. digits(now + visibility_ms), 'BYSCORE', 'REV', 'LIMIT', 0, shorten and 1000 or FURTHEST}
for _, id in ipairs(redis.call('ZRANGE', leases, unpack(furthest))) do
  if shorten or whole(redis.pcall('HGET', jobs .. id, 'claimed_at_ms')) > now then
    redis.call('ZADD', leases, now + visibility_ms, id)
  end
end

if has_gates then
  --@include lanes
  --@include gates
  --@include queue_limits
  --@include place_lanes
  gate_of_job = gate_of

  -- The jobs of a gate that have a place but no lease, among a page of those that have a place.
  local function without_lease(gate)
    local field, words, found = gate.name .. ' mended', {}, {}
    local last = redis.pcall('HGET', gate_turns, field)
    local page = redis.call('ZRANGE', gate.running, type(last) == 'string' and '(' .. last or '-', '+', 'BYLEX', 'LIMIT', 0, PAGE)
    if #page == PAGE then redis.pcall('HSET', gate_turns, field, page[PAGE]) else redis.pcall('HDEL', gate_turns, field) end
    for n, name in ipairs(page) do words[n] = string.match(name, '(%S*)$') end
    local ends = #page > 0 and redis.call('ZMSCORE', leases, unpack(words)) or {}
    for n, name in ipairs(page) do
      if not ends[n] then found[#found + 1] = {words[n], gate.name, string.sub(name, 1, -#words[n] - 2)} end
    end
    return found
  end

  -- A gate without limits, of which nothing runs or waits, was removed, or is a name that only jobs had.
  local function forget_unused(gate)
    if redis.call('EXISTS', held, gate.running) > 0 or redis.call('HGET', gates, gate.name) ~= '{}' then return end
    redis.call('HDEL', gates, gate.name)
    redis.pcall('HDEL', gate_turns, gate.name)
  end

  note_running = function(id, name, gate_key)
    local gate = gate_of(name)
    if not gate.is_damaged then redis.call('ZADD', gate.running, 0, gate_key .. ' ' .. id) end
  end

  -- The clock went back: instants of rates lie further ahead than they should.
  local function look_again()
    for _, name in ipairs(redis.call('ZRANGE', resting, '(' .. stamp, '(+inf', 'BYSCORE', 'LIMIT', 0, 1000)) do
      redis.call('ZADD', resting, stamp, name)
    end
  end

  finish_gates = function()
    if shorten then look_again() end
    enter(entered)
    leave(left_gates)
    if #gone > 0 then redis.call('ZREM', leases, unpack(gone)) end
    opened = opened or (#gone > 0 and gate_of('').concurrency ~= nil)  -- the queue has room for jobs without a gate, too
    for _, name in ipairs(redis.call('HRANDFIELD', gates, MOST_FIELDS)) do
      if name ~= '' and not string.find(name, ' ', 1, true) and not gate_of(name).is_damaged then
        local lost = without_lease(gate_of(name))
        leave(lost)
        add_to_total('mended_total', #lost)
        forget_unused(gate_of(name))
      end
    end
    local from = whole(redis.pcall('HGET', gate_turns, ' sweep'))
    local next_number = place_lanes(from, 50)
    if next_number then redis.pcall('HSET', gate_turns, ' sweep', next_number) else redis.pcall('HDEL', gate_turns, ' sweep') end
    if opened and not is_queue_full() then set_wake() end
    local at = close_gates()
    if at then announce_due(at) end
  end
end

-- The runs that have ended without undoing what they have done, among those whose turn it is.
local to_be_undone = {}
if offset == 0 then
  local AUDITED, AUDIT_MS = 100, 30000
  local listed = redis.pcall('ZRANGE', undos, '-inf', stamp, 'BYSCORE', 'LIMIT', 0, AUDITED)
  for _, id in ipairs(listed.err and {} or listed) do
    local job = redis.pcall('HMGET', jobs .. id, 'status', 'run', 'settled_move', 'last_error')
    local run = not job.err and job[2]
    if open_undos(run) == 0 or job[1] == 'completed' then
      redis.call('ZREM', undos, id)
      if not run then add_to_total('undos_dropped_total', 1) end
    else
      redis.call('ZADD', undos, now + AUDIT_MS, id)
      if FINISHED[job[1]] and not string.find(run, ' left=1', 1, true) then
        -- A worker of an earlier release may have failed it because of a mistake in the code, which undoes nothing.
        local is_final = job[1] == 'cancelled' or undoing_of(run) or job[3] == 'reclaim' or string.find(job[4] or '', '^%u%l+Failed: ')
        if is_final then to_be_undone[#to_be_undone + 1] = id else redis.call('HSET', jobs .. id, 'run', run .. ' left=1') end
      end
    end
  end
end

local ended_by = math.min(now, looked_at or now)
local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', ended_by, 'LIMIT', 0, limit)
for _, id in ipairs(expired) do decide(id) end
push_back(returned)
if finish_gates then finish_gates() end
if #gone > 0 then redis.call('ZREM', leases, unpack(gone)) end

if offset < 0 and redis.call('LLEN', processing) > redis.call('ZCARD', leases) then offset = 0 end
if offset >= 0 then
  local page, seen = redis.call('LRANGE', processing, offset, offset + PAGE - 1), {}
  for _, id in ipairs(page) do adopt(id, seen) end
  offset = #page < PAGE and -1 or offset + PAGE
end

do
  -- `settle.lua` relies on this note, which is valid for a minute, so that it need not ask for INFO itself.
  local function note_memory()
    if redis.call('LLEN', completed) <= KEPT_IN_HIGH_MEMORY then return end
    local section = 'memory'
    local info = redis.pcall('INFO', section)
    if type(info) ~= 'string' then return end  -- INFO may be forbidden
    local function number(name) return tonumber(string.match(info, '\n' .. name .. ':(%d+)')) or 0 end
    local most = number('maxmemory')
    if most > 0 and number('used_memory') - number('mem_not_counted_for_evict') > HIGH_MEMORY * most then
      redis.pcall('HSET', stats, 'memory_high_at_ms', stamp)
    end
  end
  note_memory()
end

-- The age of the oldest completed record.
local function kept_ms()
  local oldest = redis.call('LINDEX', completed, -1)
  return oldest and math.max(0, now - whole(redis.pcall('HGET', jobs .. oldest, 'completed_at_ms'))) or 0
end

local has_forgotten
do
  -- Remove the entries of one page of a history whose records are gone, or whose ids were enqueued again since. They are
  -- first overwritten with the same id, so that one LREM from the nearer end removes them all. Returns how many they were.
  local function forget_page(list, state, number)
    local length = redis.call('LLEN', list)
    if length == 0 then return 0 end
    local first = number % math.ceil(length / HISTORY_PAGE) * HISTORY_PAGE  -- counted from the old end
    local ids, name, count = redis.call('LRANGE', list, -first - HISTORY_PAGE, -first - 1), nil, 0
    for n, id in ipairs(ids) do
      local status = redis.pcall('HGET', jobs .. id, 'status')
      if status ~= state and (type(status) == 'string' or redis.call('EXISTS', jobs .. id) == 0) then
        name, count = name or id, count + 1
        redis.call('LSET', list, n - 1 - first - #ids, name)
      end
    end
    if count > 0 then redis.call('LREM', list, first < length / 2 and -count or count, name) end
    return count
  end

  local function forget_pages()
    if redis.pcall('HGET', stats, 'own_ttls') ~= '1' then return 0 end
    local number = redis.pcall('HINCRBY', stats, 'own_ttl_sweeps', 1)
    if type(number) ~= 'number' then number = now end
    return forget_page(completed, 'completed', number)
      + forget_page(failed, 'failed', number)
      + forget_page(cancelled, 'cancelled', number)
  end
  has_forgotten = forget_pages() > 0
end
local forgotten = {
  forget_expired(completed),
  forget_expired(failed),
  forget_expired(cancelled),
  trim_completed(completed_history, min_keep_ms, MOST_TRIMMED, redis.call('LLEN', completed)),
  trim(failed, 'failed', 'last_error_at_ms', failed_history, min_keep_ms, MOST_TRIMMED),
  (trim(cancelled, 'cancelled', 'cancelled_at_ms', failed_history, min_keep_ms, MOST_TRIMMED)),
}
if earliest < head then announce_due(earliest) end

local more = has_forgotten or (#expired == limit and left < limit)
for _, count in ipairs(forgotten) do more = more or count >= MOST_TRIMMED end
local trimmed = whole(redis.pcall('HGET', stats, 'trimmed_total'))
local reply = {now, more and 1 or 0, offset, trimmed, trimmed > 0 and kept_ms() or 0, is_memory_high() and 1 or 0, #taken_back, #to_be_undone}
for _, job in ipairs(taken_back) do
  reply[#reply + 1] = job[1]
  reply[#reply + 1] = job[2]
end
for _, id in ipairs(to_be_undone) do reply[#reply + 1] = id end
for _, value in ipairs(undecided) do reply[#reply + 1] = value end
return reply
