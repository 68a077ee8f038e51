--[[
Put a message into a box of a job that has not finished, and wake its run if it waits for that topic.

A message whose id is among the last 100 of its topic changes nothing. When memory is full, Redis refuses it. A job that has
begun no run may be one of a plain task, which takes no messages: the workers know, and perhaps the caller.

KEYS  pending (list), delayed (zset), leases (zset), stats (hash), wake (zset), paused (string), asleep (hash), log (stream), workers (zset)
ARGV  jobs, worker_keys, clock, log_size, silence_ms (number)
      id: the job
      topic
      message: its id
      value: JSON
      plain: the tasks that the caller knows to be no workflows, as a JSON array
Returns  yes | no (the job has finished, or there is none) | FULL (there are too many messages, or topics) | plain NAME (its task
         NAME is no workflow)
]]
local MOST_MESSAGES, MOST_BYTES, MOST_TOPICS, MOST_IDS, MOST_WORKERS = 100, 65536, 100, 100, 20
--@include clock
--@include checks
--@include in_transit
--@include numbers
--@include job
--@include totals
--@include wake
--@include log
--@include task_of
local bad = wrong_type('list', pending) or wrong_type('zset', delayed, leases)
if bad then return bad end

local job = read_job(id, 'status', 'payload', 'inbox:' .. topic, 'sent:' .. topic, 'topics', 'waits', 'attempts', 'run')
if not job then return 'no' end
local box, sent = job[3] or '', job[4] or ''
if string.find('\n' .. sent .. '\n', '\n' .. message .. '\n', 1, true) then return 'yes' end
if FINISHED[job[1]] or not job[2] then return 'no' end

local function is_listed(task, text)
  local is_read, names = pcall(cjson.decode, text or '')
  for _, name in ipairs(is_read and type(names) == 'table' and names or {}) do
    if name == task then return true end
  end
  return false
end

-- A worker that knows the task as a workflow is right, as it may be of a newer release than others.
local function is_plain(task)
  local found = is_listed(task, plain)
  local live = redis.pcall('ZRANGE', workers, now + silence_ms, now - silence_ms, 'BYSCORE', 'REV', 'LIMIT', 0, MOST_WORKERS)
  for _, worker in ipairs(live.err and {} or live) do
    local this_worker = worker_keys .. worker
    local record = redis.pcall('HMGET', this_worker, 'tasks', 'workflows')
    if record[2] and is_listed(task, record[1]) then
      if is_listed(task, record[2]) then return false end
      found = true
    end
  end
  return found
end
local task = not job[8] and task_of(job[2])
if task and is_plain(task) then return 'plain ' .. task end

local _, breaks = string.gsub(box, '\n', '')
local line = stamp .. ' ' .. value
if (box ~= '' and breaks + 1 >= MOST_MESSAGES) or #box + #line + 1 > MOST_BYTES then return 'FULL' end
local topics = whole(job[5]) + (job[4] and 0 or 1)
if topics > MOST_TOPICS then return 'FULL' end
local _, ids = string.gsub(sent, '\n', '')
if sent ~= '' and ids + 1 >= MOST_IDS then sent = string.sub(sent, string.find(sent, '\n', 1, true) + 1) end

local function waits_for_it()
  local is_read, waits = pcall(cjson.decode, job[6] or '[]')
  for _, wait in ipairs(is_read and type(waits) == 'table' and waits or {}) do
    if type(wait) == 'table' and wait[4] == topic then
      -- A lease of 0 means that an error ended this move before.
      return redis.call('ZSCORE', delayed, id) or redis.call('ZSCORE', leases, id) == '0'
    end
  end
end
local fields = {'inbox:' .. topic, (box ~= '' and box .. '\n' or '') .. line, 'sent:' .. topic,
  (sent ~= '' and sent .. '\n' or '') .. message, 'topics', digits(topics)}
if waits_for_it() then
  -- As in reschedule.lua. The message and what says that the run is awake are in one command: both are done, or neither.
  mark_in_transit(id)
  redis.call('ZREM', delayed, id)
  redis.call('HSET', jobs .. id, 'run_at_ms', stamp, 'status', 'pending', 'promoted_at_ms', stamp, unpack(fields))
  redis.call('RPUSH', pending, id)
  unmark_in_transit(id)
  add_to_total('promoted_total', 1)
  set_wake()
else
  redis.call('HSET', jobs .. id, unpack(fields))
end
write_log('send', id, whole(job[7]), topic)
return 'yes'
