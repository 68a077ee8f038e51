--[[
End attempts (complete, retry, fail, snooze or release), each only for the worker that holds the job.

Nothing is written if the token is not the job's, or the job is not in `processing`. A job that was asked to stop ends in
`cancelled`, unless it completed. A snooze with a text comes from a worker that lacks the job's task; the record keeps
the time of the first such snooze until a worker that has the task ends an attempt. The record of a finished job may
expire; one that is not to be kept at all is deleted at the end. The longer `processing`, the fewer jobs a call takes,
because it searches the list for each.

KEYS  processing (list), leases (zset), pending (list), delayed (zset), completed (list), failed (list),
      cancelled (list), stats (hash), wake (zset), paused (string), promoter (string), log (stream)
ARGV  jobs, clock, events, log_size, due_channel, completed_ttl_ms, failed_ttl_ms, completed_history (number),
      failed_history (number), min_keep_ms (number)
      endings...: per job: complete | retry | fail | snooze | release, id, token, delay in ms, text (result, error or
        why it can't be run), note (what was wrong with the result, or the text in short), traceback or '', its task's
        completed_ttl or, unless it completes, failed_ttl in ms, or ''
Returns  per job: OK | DUPLICATE (this token has already ended the job by this move) | LOST | AGAIN (send it again)
]]
local MOST_RELEASES, MINUTE = 5, '60000'
local LAST_INSTANT = 253402300799999
--@include clock
--@include checks
--@include numbers
--@include totals
--@include events
--@include log
--@include processing
--@include tombstone
--@include trim
--@include completed
--@include retention
local bad = wrong_type('list', processing, pending, completed, failed, cancelled) or wrong_type('zset', leases, delayed)
if bad then return bad end

local HISTORIES = {completed = completed, failed = failed, cancelled = cancelled}
local earliest = LAST_INSTANT + 1
local ended = {}  -- list or zset -> ids
local counts = {}
local returned = {}  -- {id, started_at_ms, token} of those that were released
local dropped = {}  -- {history, id} of those that are not kept
local job  -- fields of the current job, as read below
local head  -- of `delayed`, before this script changes it

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
    local history = with_attempt(job[7], whole(job[4]), job[8], whole(job[5]), outcome, note)
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

-- End an attempt in another way than by its success.
local function settle_otherwise(move, id, key, token, delay, text, note, ttl)
  local attempts, due = whole(job[4]), math.min(now + delay, LAST_INSTANT)

  local function delay_it()
    head = head or tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or LAST_INSTANT + 1)
    redis.call('ZADD', delayed, due, id)
    earliest = math.min(earliest, due)
  end

  if job[3] then
    write(key, move, token, 'cancelled', note, 'status', 'cancelled', 'cancelled_at_ms', stamp)
    finish(id, key, 'cancelled', attempts, kept_for(job[9], ttl, failed_ttl_ms))
  elseif move == 'fail' then
    write(key, move, token, 'failed', note, 'status', 'failed', 'last_error', text, 'last_error_at_ms', stamp)
    finish(id, key, 'failed', attempts, kept_for(job[9], ttl, failed_ttl_ms), ',"error":' .. cjson.encode(note))
  elseif move == 'retry' then
    write(key, move, token, 'retry', note, 'status', 'delayed', 'last_error', text, 'last_error_at_ms', stamp,
      'run_at_ms', due)
    delay_it()
    arrive('delayed', id, 'retried')
    publish_event(id, 'retry', attempts, nil, ',"run_at_ms":' .. digits(due) .. ',"error":' .. cjson.encode(note))
  elseif move == 'snooze' then
    if text ~= '' then  -- no attempt was made, so none is added to the history
      local since = redis.call('HGET', key, 'unknown_since_ms') or stamp
      redis.call('HSET', key, 'settled_token', token, 'settled_move', 'snooze', 'status', 'delayed', 'run_at_ms', due,
        'attempts', math.max(0, attempts - 1), 'unknown_since_ms', since)
      redis.call('HDEL', key, 'claim_token', 'stop')
    else
      write(key, move, token, 'snoozed', '', 'status', 'delayed', 'run_at_ms', due, 'attempts', math.max(0, attempts - 1))
    end
    delay_it()
    arrive('delayed', id, 'snoozed')
    local why = note ~= '' and ',"error":' .. cjson.encode(note) or ''
    publish_event(id, 'snoozed', attempts - 1, nil, ',"run_at_ms":' .. digits(due) .. why)
  else
    local released = whole(redis.call('HGET', key, 'released'))
    local given_back = released < MOST_RELEASES and math.max(0, attempts - 1) or attempts
    write(key, move, token, 'released', '', 'status', 'pending', 'attempts', given_back, 'released', released + 1)
    returned[#returned + 1] = {id, whole(job[5]), token}
    counts.released = (counts.released or 0) + 1
    publish_event(id, 'released', given_back)
  end
end

local function settle(move, id, token, delay, text, note, traceback, ttl)
  local key = jobs .. id
  take_claimed(id, whole(job[5]))
  if traceback ~= '' then redis.call('HSET', key, 'traceback', traceback) end
  if move ~= 'complete' then return settle_otherwise(move, id, key, token, delay, text, note, ttl) end
  write(key, move, token, 'completed', '', 'status', 'completed', 'completed_at_ms', stamp, 'result', text)
  if note ~= '' then redis.call('HSET', key, 'result_error', note) end
  finish(id, key, 'completed', whole(job[4]), kept_for(job[9], ttl, completed_ttl_ms))
end

local words, gone = {}, {}
local allowance = math.max(1, math.floor(200000 / (redis.call('LLEN', processing) + 200)))
for i = endings_start, #ARGV, 8 do
  local move, id, token = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local word = 'LOST'
  if #gone >= allowance then
    word = 'AGAIN'
  elseif token ~= '' then
    job = redis.pcall('HMGET', jobs .. id, 'status', 'claim_token', 'stop', 'attempts', 'started_at_ms', 'waiter',
      'history', 'worker', move == 'complete' and 'completed_ttl_ms' or 'failed_ttl_ms')
    if not job.err and job[1] == 'processing' and job[2] == token then
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

if ended.completed then redis.call('LPUSH', completed, unpack(ended.completed)) end
if ended.failed then redis.call('LPUSH', failed, unpack(ended.failed)) end
if ended.cancelled then redis.call('LPUSH', cancelled, unpack(ended.cancelled)) end
if head or #returned > 0 then
  --@include wake
  --@include due
  --@include push_back
  push_back(returned)
  if head and earliest < head then announce_due(earliest) end
end
-- Leases are removed last: if an error ends the script earlier, the reclaimer finds the job by its lease and puts it back.
redis.call('ZREM', leases, unpack(gone))
for _, entry in ipairs(dropped) do
  delete_record(jobs .. entry[2], redis.call('HGET', jobs .. entry[2], 'entry_left'))
  redis.call('LREM', HISTORIES[entry[1]], 1, entry[2])
end
local budget = 2 * #gone + 10
if ended.completed then trim_completed(completed_history, min_keep_ms, budget) end
if ended.failed then trim(failed, 'failed', 'last_error_at_ms', failed_history, min_keep_ms, budget) end
if ended.cancelled then trim(cancelled, 'cancelled', 'cancelled_at_ms', failed_history, min_keep_ms, budget) end
for outcome, count in pairs(counts) do add_to_total(outcome .. '_total', count) end
return words
