--[[
Delete jobs that are not running; a job that is running, or not in the given state, is refused. So is a waiting run that has
something to undo: it must be cancelled.

Entries of a list are searched for around the position where the caller saw them, or else in the whole list. If the list
is too long for that, FAR asks for a position. Entries far from both ends are first overwritten with the same id, so that
one LREM removes them all. If an error ends the script in between, a mark shows which jobs are affected, and they are put
back or noted as broken.

KEYS  pending (list), delayed (zset), completed (list), failed (list), cancelled (list), leases (zset), stats (hash),
      held (zset), resting (zset), groups (zset), wake (zset), paused (string), asleep (hash)
ARGV  jobs, clock, group_keys
      state: the state that the jobs must be in, or '' for any
      request: a new id, by which a repeated request is recognized
      position (number): how many entries come before them, counted from the old end of a list, or ''
      ids...
Returns  per job: yes | no | FAR; fewer words than ids means "send the rest again"
]]
local MOST_SEARCHED, MOST_FREED = 100000, 1048576  -- entries; bytes of payloads, because freeing memory takes time
local BEFORE, AROUND, FAR = 300, 1000, 1000
--@include clock
--@include checks
--@include in_transit
--@include numbers
--@include job
--@include totals
--@include idempotent
--@include tombstone
--@include group_end
--@include undo
--@include wake
local bad = wrong_type('list', pending, completed, failed, cancelled) or wrong_type('zset', delayed, leases, held)
if bad then return bad end

local WORDS = {y = 'yes', n = 'no', F = 'FAR'}
local noted = redis.pcall('HGET', stats, 'last_delete')
local before = type(noted) == 'string' and earlier_reply(noted, request)
if before then
  local words = {}
  for letter in string.gmatch(before, '.') do words[#words + 1] = WORDS[letter] end
  return words
end

local LISTS = {pending = pending, completed = completed, failed = failed, cancelled = cancelled}
local searched, freed = 0, 0
local taken, out, left = {}, {}, {}  -- ids; per list: {entries from the old end, id}; ids that leave another entry behind
local from_lanes, of_group = {}, {}

local around = {}  -- ids near the position: how many entries come before each
if position and LISTS[state] then
  local first = math.max(0, position - BEFORE)
  local near = redis.call('LRANGE', LISTS[state], -first - AROUND, -first - 1)
  for i, id in ipairs(near) do around[id] = first + #near - i end
end

-- Where a job is, by its status. A waiting job, or one without a status, may be in `delayed` or `pending`.
local function rests_in(id, status, is_marked)
  if not status or status == 'pending' or status == 'delayed' then
    if is_marked and status == 'delayed' then return 'delayed' end
    local found = redis.call('ZSCORE', delayed, id) and 'delayed' or 'pending'
    return (found == 'delayed' or status ~= 'delayed') and found or nil
  end
  return LISTS[status] and status
end

local function sought(id, place)
  if around[id] and LISTS[state] == place then return around[id] end
  local length = redis.call('LLEN', place)
  if length > MOST_SEARCHED then return nil, true end
  searched = searched + length
  local index = redis.call('LPOS', place, id, 'RANK', -1)
  return index and length - 1 - index
end

local function take(id)
  local job = not taken[id] and read_job(id, 'status', 'payload', 'entry_left', 'tombstone', 'group', 'run')
  if job and job[4] then return 'n' end
  local lease = job and tonumber(redis.call('ZSCORE', leases, id))  -- 0: an error ended this move before
  local found = job and rests_in(id, job[1], lease == 0)
  if not found or (state ~= '' and state ~= found) then return 'n' end
  if not FINISHED[found] and ((lease and lease > 0) or undoing_of(job[6]) or open_undos(job[6]) > 0) then return 'n' end
  if found == 'pending' and redis.call('ZSCORE', held, id) then
    from_lanes[#from_lanes + 1] = id
  elseif LISTS[found] then
    local at, is_far = sought(id, LISTS[found])
    if is_far then return 'F' end
    -- Without an entry it may be about to run. Only a finished job may be deleted then.
    if not at and not FINISHED[found] and lease ~= 0 then return 'n' end
    if at then
      out[found] = out[found] or {}
      table.insert(out[found], {at, id})
    end
  end
  taken[id] = found
  left[id] = job[3]
  of_group[id] = job[5]
  freed = freed + #(job[2] or '')
  return 'y'
end

local letters, gone = {}, {}
for i = ids_start, #ARGV do
  if #letters > 0 and (searched > MOST_SEARCHED or freed > MOST_FREED) then break end
  letters[#letters + 1] = take(ARGV[i])
  if letters[#letters] == 'y' then gone[#gone + 1] = ARGV[i] end
end

local function take_out(place, entries)
  local deepest, highest = 0, math.huge
  for _, entry in ipairs(entries) do
    deepest, highest = math.max(deepest, entry[1]), math.min(highest, entry[1])
  end
  local from_new_end = redis.call('LLEN', place) - highest
  local sign = deepest < from_new_end and -1 or 1
  if math.min(deepest, from_new_end) < FAR then
    for _, entry in ipairs(entries) do redis.call('LREM', place, sign, entry[2]) end
    return
  end
  for _, entry in ipairs(entries) do redis.call('LSET', place, -1 - entry[1], entries[1][2]) end
  redis.call('LREM', place, sign * #entries, entries[1][2])
end

if #gone > 0 then
  allow_when_full(leases)
  for id, group in pairs(of_group) do if group then tell_group(group, id, false, 'deleted') end end
  for _, id in ipairs(gone) do mark_in_transit(id) end
  for found, entries in pairs(out) do take_out(LISTS[found], entries) end
  for _, id in ipairs(from_lanes) do  -- the next job of its key may start now
    local found = redis.pcall('HMGET', jobs .. id, 'gate', 'key')
    if not found.err and found[1] then redis.pcall('ZADD', resting, stamp, found[1] .. ' ' .. (found[2] or '')) end
  end
  if #from_lanes > 0 then redis.call('ZREM', held, unpack(from_lanes)) end
  for _, id in ipairs(gone) do
    if taken[id] == 'delayed' then redis.call('ZREM', delayed, id) end
    delete_record(jobs .. id, left[id])
  end
  unmark_in_transit(unpack(gone))
  if #from_lanes > 0 or next(told) then set_wake() end
  add_to_total('purged_total', #gone)
  redis.pcall('HSET', stats, 'last_delete', request .. ' ' .. table.concat(letters))
end
local words = {}
for i, letter in ipairs(letters) do words[i] = WORDS[letter] end
return words
