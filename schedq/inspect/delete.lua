--[[
Delete jobs that rest; one that runs, or is found in another state than asked, is refused whole.

Entries of a list are looked for around a position that the caller saw them at, else in all of it, and in one that is
too long for that not at all: FAR asks for a position. Those far from both ends take the name of one of them, so that
one pass takes them all out. What an error left of a job is found by its mark, and put back or noted as broken.

KEYS  pending (list), delayed (zset), completed (list), failed (list), cancelled (list), leases (zset), stats (hash)
ARGV  jobs
      state: the state that the jobs must be in, or '' for any
      request: fresh; a request that is sent again is recognised by it
      position (number): how many entries stand before them at the old end of a list, or ''
      ids...
Returns  per job: yes | no | FAR; fewer words than ids means "send the rest again"
]]
local MOST_SEARCHED, MOST_FREED = 100000, 1048576  -- entries; bytes of payloads: giving memory back takes its time
local BEFORE, AROUND, FAR = 300, 1000, 1000
--@include checks
--@include in_transit
--@include numbers
--@include job
--@include totals
--@include idempotent
--@include tombstone
local bad = wrong_type('list', pending, completed, failed, cancelled) or wrong_type('zset', delayed, leases)
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
local taken, out, left = {}, {}, {}  -- ids; per list: {entries from the old end, id}; ids of which another entry stays

local around = {}  -- ids near the position: how many entries come before each
if position and LISTS[state] then
  local first = math.max(0, position - BEFORE)
  local near = redis.call('LRANGE', LISTS[state], -first - AROUND, -first - 1)
  for i, id in ipairs(near) do around[id] = first + #near - i end
end

-- The place that a job rests in by its status. What says nothing, or that it waits, may wait in either way.
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
  local job = not taken[id] and read_job(id, 'status', 'payload', 'entry_left', 'tombstone')
  if job and job[4] then return 'n' end
  local lease = job and tonumber(redis.call('ZSCORE', leases, id))  -- 0: an error ended this very move before
  local found = job and rests_in(id, job[1], lease == 0)
  if not found or (state ~= '' and state ~= found) then return 'n' end
  if lease and lease > 0 and not FINISHED[found] then return 'n' end
  if LISTS[found] then
    local at, is_far = sought(id, LISTS[found])
    if is_far then return 'F' end
    -- It may be on its way to where it runs; only what has finished is there without its entry.
    if not at and not FINISHED[found] and lease ~= 0 then return 'n' end
    if at then
      out[found] = out[found] or {}
      table.insert(out[found], {at, id})
    end
  end
  taken[id] = found
  left[id] = job[3]
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
  for _, id in ipairs(gone) do mark_in_transit(id) end
  for found, entries in pairs(out) do take_out(LISTS[found], entries) end
  for _, id in ipairs(gone) do
    if taken[id] == 'delayed' then redis.call('ZREM', delayed, id) end
    delete_record(jobs .. id, left[id])
  end
  unmark_in_transit(unpack(gone))
  add_to_total('purged_total', #gone)
  redis.pcall('HSET', stats, 'last_delete', request .. ' ' .. table.concat(letters))
end
local words = {}
for i, letter in ipairs(letters) do words[i] = WORDS[letter] end
return words
