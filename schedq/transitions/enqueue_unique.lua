--[[
Store new jobs, as enqueue.lua does, that have unique keys or belong to gates.

A job that belongs to a gate goes to the lane of its key instead of `pending`; see shared/gates.lua. A gate that is not
known yet gets the limits that the caller knows, so that they hold before a worker has started.

A job with a unique key is not stored while another job holds the key.

The record of a job is what holds its key: it names the key, and it is in one of the states that count. So the key is
free as soon as the job has ended, whoever ended it, and never before. The index only says whose record to look at; what
it says of other jobs is stale and is removed bit by bit as new jobs come. Only a window (`per`) is held by the index.

A rule says: `done` (a job holds its key until it has ended) or `start` (until it is claimed for the first time), for how
many ms after its enqueue no other job gets the key in any case, and what to do with a job whose key is held: `keep` the
one that is there, `raise`, `replace` its payload and options if it has never been claimed, or `debounce`, which also
moves it to `wait` ms from now, but no more than `most_wait` ms after its enqueue. An imported job is refused
if another one holds its key, whatever its rule says.

KEYS  pending (list), delayed (zset), completed (list), failed (list), cancelled (list), stats (hash), wake (zset),
      paused (string), asleep (hash), promoter (string), held (zset), unique_keys (hash), lanes (hash), gates (hash),
      open_gates (zset), resting (zset), gate_holds (zset), gate_turns (hash)
ARGV  jobs, clock, due_channel, gate_keys, max_pending (number)
      gate_limits: the limits of gates as a JSON object, by their names; or ''
      whose_ids: as for enqueue.lua
      new_jobs...: as for enqueue.lua; the options `unique` and `unique_rule` come together. Every job has a mark
Returns  per job a word of enqueue.lua, or UNIQUE | REPLACED | HELD (`raise`, import) and the id of the job that holds
         the key; fewer words than jobs means "send the rest again"
]]
local theirs = whose_ids ~= '0'
local LAST_INSTANT, MOST_SEARCHED, NEWEST, MOST_WAITING = 253402300799999, 2000, 10000, 100000
local MOST_REQUESTS, MOST_SAMPLED = 16, 300
--@include clock
--@include checks
--@include totals
--@include wake
--@include new_record
--@include numbers
--@include expiry
--@include due
--@include unique
local bad_index = wrong_type('hash', unique_keys)
if bad_index then return bad_index end
local i = new_jobs_start

local function option(at, name)
  for n = at + 5, at + 4 + ARGV[at + 4], 2 do
    if ARGV[n] == name then return ARGV[n + 1] end
  end
end

local function is_import(at) return string.find(ARGV[at + 2], ':import:', 1, true) end

-- Keys of jobs of this call -> the ids of the first ones. A job that may replace one of them waits for the next call,
-- when the record to change is there.
local seen = {}
local function is_for_next_call(at)
  local key = option(at, 'unique')
  if not key then return false end
  if not seen[key] then
    seen[key] = ARGV[at]
    return false
  end
  local rule = rule_of(option(at, 'unique_rule'))
  return not is_import(at) and (rule.conflict == 'replace' or rule.conflict == 'debounce')
end

local OPTIONS = {'max_attempts', 'backoff', 'timeout_ms', 'expires', 'headers', 'completed_ttl_ms', 'failed_ttl_ms', 'trace'}

-- Whether the new job `id` has replaced this one already: its request was sent again.
local function has_replaced(id, job)
  return job and string.find(' ' .. (job.replaced_by or '') .. ' ', ' ' .. id .. ' ', 1, true)
end

-- Give a job that has never been claimed another payload and other options.
local function replace(holder, job, at, rule)
  local requests, key = {ARGV[at]}, jobs .. holder
  for each in string.gmatch(job.replaced_by or '', '%S+') do
    if #requests < MOST_REQUESTS then requests[#requests + 1] = each end
  end
  local fields = {'payload', ARGV[at + 1], 'replaced_at_ms', stamp, 'replaced_by', table.concat(requests, ' ')}
  local given, gone = {}, {}
  for n = at + 5, at + 4 + ARGV[at + 4], 2 do
    local name, value = ARGV[n], ARGV[n + 1]
    if name == 'expires' and expires_at(value, stamp) then value = digits(expires_at(value, stamp)) end
    if name ~= 'made_by' and name ~= 'gate' and name ~= 'key' then fields[#fields + 1], fields[#fields + 2], given[name] = name, value, true end
  end
  for _, name in ipairs(OPTIONS) do
    if not given[name] then gone[#gone + 1] = name end
  end
  redis.call('HSET', key, unpack(fields))
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  local is_delayed = rule.conflict == 'debounce' and redis.call('ZSCORE', delayed, holder)
  if not is_delayed then return end
  local due = now + rule.wait
  if rule.most_wait then due = math.min(due, math.max(now, whole(job.enqueued_at_ms) + rule.most_wait)) end
  local head = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
  redis.call('ZADD', delayed, digits(due), holder)
  redis.call('HSET', key, 'run_at_ms', digits(due))
  if due < head then announce_due(due) end
end

local kept, inherited = 0, {}
local function other_holder(at, id, there, accepted)
  local key = option(at, 'unique')
  if not key then return nil, there end
  local rule, holder, job, last = rule_of(option(at, 'unique_rule')), seen[key], nil, nil
  if not accepted[holder] then holder, job, last = holder_of(key, rule) end
  if has_replaced(id, job or last) then return 'REPLACED ' .. (job or last).id, there end
  if last and last.replaced_by then inherited[id] = last.replaced_by end
  if not holder or holder == id then
    seen[key] = id
    return nil, there
  end
  if rule.conflict == 'raise' or is_import(at) then return 'HELD ' .. holder, there end
  kept = kept + 1
  if job and rule.conflict ~= 'keep' and not job.started_at_ms then
    replace(holder, job, at, rule)
    return 'REPLACED ' .. holder, there
  end
  return 'UNIQUE ' .. holder, job and holder or there
end

-- A request that replaced the last job with a key may be sent again when that one has ended: the next one knows it too.
local function note_requests()
  for id, requests in pairs(inherited) do
    if redis.call('EXISTS', jobs .. id) == 1 then redis.call('HSET', jobs .. id, 'replaced_by', requests) end
  end
end

local at, count = i, 0
while at <= #ARGV do at, count = at + 5 + ARGV[at + 4], count + 1 end
-- Two for each new job: so the index never has many more entries than there were jobs at a time.
local stale = stale_keys(math.min(MOST_SAMPLED, 2 * count))
local function note_holders(new, starts)
  local notes = {}
  for _, n in ipairs(new) do
    local key = option(starts[n], 'unique')
    if key then
      local per = rule_of(option(starts[n], 'unique_rule')).per
      notes[#notes + 1], notes[#notes + 2] = key, (per > 0 and digits(now + per) or '0') .. ' ' .. ARGV[starts[n]]
      stale[key] = nil
    end
  end
  if #notes > 0 then redis.call('HSET', unique_keys, unpack(notes)) else stale = {} end
end

local goes_to_lane, enter_lanes, finish_gates
if gate_limits ~= '' then
  --@include lanes
  --@include gates
  local bad_gate = wrong_type('hash', gates, lanes, gate_turns) or wrong_type('zset', held, open_gates, resting, gate_holds)
  if bad_gate then return bad_gate end
  local entered = {}

  goes_to_lane = function(id, at)
    local gate = option(at, 'gate')
    if gate then entered[#entered + 1] = {id, gate, option(at, 'key') or ''} end
    return gate
  end

  enter_lanes = function()
    for name, limits in pairs(cjson.decode(gate_limits)) do
      local is_new = redis.call('HSETNX', gates, name, limits) == 1
      if is_new and limits ~= '{}' then redis.call('HSET', gates, name .. ' code', limits) end
    end
    enter(entered)
  end

  finish_gates = function()
    if opened then set_wake() end
    local at = close_gates()
    if at then announce_due(at) end
  end
end
--@include store_jobs
if finish_gates then finish_gates() end
note_requests()
add_to_total('deduplicated_total', kept)
for key in pairs(stale) do redis.call('HDEL', unique_keys, key) end
return words
