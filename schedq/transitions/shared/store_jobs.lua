-- Needs clock, checks, totals, wake, numbers, expiry, due and new_record. Stores the jobs that begin at ARGV[i]; the script
-- returns `words`. `theirs`: some ids are the caller's. The other functions are nil unless some jobs have unique keys:
-- `other_holder(at, id, there, accepted)` decides about a job whose key another one holds, `is_for_next_call(at)` about one whose
-- key a job of this call has, and `note_holders(new, starts)` writes which jobs hold keys now. `goes_to_lane(id, at)` says whether
-- a job belongs to a gate, and `enter_lanes()` puts those that do into their lanes.
local bad = wrong_type('list', pending) or wrong_type('zset', delayed)
  or (theirs and wrong_type('list', completed, failed, cancelled) or nil)
if bad then return bad end

local waiting, searched, has_own_ttls = redis.call('LLEN', pending), 0, false
if max_pending then waiting = waiting + whole(redis.pcall('ZCARD', held)) end
if theirs then
  searched = redis.call('LLEN', completed)
  has_own_ttls = searched > MOST_SEARCHED and redis.pcall('HMGET', stats, 'own_ttls')[1] == '1'
  if whose_ids == '1' then searched = math.min(searched, has_own_ttls and MOST_SEARCHED + NEWEST or MOST_SEARCHED) end
  searched = searched + redis.call('LLEN', failed) + redis.call('LLEN', cancelled)
end
local allowance = theirs and math.max(1, math.floor(100000 / (searched + 100))) or 1000

-- Where in ARGV the jobs begin, and their keys. Usually none of them exists, and one EXISTS for all shows it.
local starts, keys = {}, {}
while i <= #ARGV and #starts < allowance and not (is_for_next_call and is_for_next_call(i)) do
  starts[#starts + 1], keys[#keys + 1] = i, jobs .. ARGV[i]
  i = i + 5 + ARGV[i + 4]
end
local is_any_there = redis.call('EXISTS', unpack(keys)) > 0

local replaced = {}    -- number of a job -> the history with the finished job that it replaces
local entry_left = {}  -- number of a job -> entries in `pending` that are left of a cancelled job with its id

-- The result for a job whose id exists; nil if it is to be stored. Defined only if an id exists, to keep most calls fast.
local existing
if is_any_there then
  local histories = {completed = completed, failed = failed, cancelled = cancelled}
  existing = function(n, payload, if_exists, own_mark)
    if redis.call('EXISTS', keys[n]) == 0 then return nil end
    local stored = redis.pcall('HMGET', keys[n], 'payload', 'status', 'made_by', 'entry_left', 'tombstone')
    if stored.err then return 'WRONGTYPE' end
    entry_left[n] = stored[4]
    if stored[5] then return nil end
    if own_mark and stored[3] == own_mark then return 'STORED' end
    local status = stored[2] or 'pending'
    if if_exists == 'create' then return 'TAKEN ' .. status end
    if if_exists ~= 'reuse' then return stored[1] == payload and 'EXISTS' or 'CONFLICT' end
    if not histories[status] then return 'BUSY ' .. status end
    replaced[n] = histories[status]
  end
end

-- The same for an id that this call already contains.
local function repeated(n, payload, if_exists)
  if if_exists == 'create' then return 'TAKEN pending' end
  if if_exists == 'reuse' then return 'BUSY pending' end
  return payload == ARGV[starts[n] + 1] and 'EXISTS' or 'CONFLICT'
end

-- Whether a job that is due later can begin before it expires.
local function is_in_time(at, due)
  for option = at + 5, at + 4 + ARGV[at + 4], 2 do
    if ARGV[option] == 'expires' then return due < (expires_at(ARGV[option + 1], stamp) or math.huge) end
  end
  return true
end

local words, new, there = {}, {}, nil  -- numbers of the jobs to store; the id of one that exists
local payloads, accepted = {}, {}        -- of callers' ids, which may occur twice; ids of jobs to store
local now_ids, later, status, run_at, earliest = {}, {}, {}, {}, LAST_INSTANT + 1
for n, at in ipairs(starts) do
  local id, payload, mode, ms = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local if_exists, own_mark
  if (theirs or other_holder) and #mode > 2 then mode, if_exists, own_mark = string.match(mode, '^(%a+):(%a*):(.+)$') end
  local due = math.min(mode == 'in' and now + ms or ms, LAST_INSTANT)
  local is_later = due > now
  local word
  if payloads[id] then
    word = repeated(n, payloads[id], if_exists)
  elseif is_any_there then
    word = existing(n, payload, if_exists, own_mark)
    if word == 'EXISTS' or word == 'STORED' then there, payloads[id] = id, payload end
  end
  if not word and other_holder then
    word, there = other_holder(at, id, there, accepted)
  end
  if not word and not is_later and max_pending and waiting >= max_pending then word = 'FULL' end
  if not word and is_later and not is_in_time(at, due) then word = 'EXPIRES' end
  if not word then
    word, new[#new + 1] = 'STORED', n
    if theirs then payloads[id] = payload end
    if other_holder then accepted[id] = true end
    if is_later or mode == 'at' then run_at[n] = digits(due) end
    status[n] = is_later and 'delayed' or 'pending'
    if is_later then
      later[#later + 1], later[#later + 2] = run_at[n], id
      earliest = math.min(earliest, due)
    else
      if not (goes_to_lane and goes_to_lane(id, at)) then now_ids[#now_ids + 1] = id end
      waiting = waiting + 1
    end
  end
  words[n] = word
end

local head = LAST_INSTANT + 1
if #later > 0 then
  head = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or head)
end

-- The list entry first, then the record. After an error in between, the id has no data, and a note about it is kept. In
-- the other order there would be a record without an entry, which would count as stored when the producer retries.
if #now_ids > 0 then redis.call('LPUSH', pending, unpack(now_ids)) end
if #later > 0 then redis.call('ZADD', delayed, unpack(later)) end
if enter_lanes and #new > 0 then enter_lanes() end
if note_holders then note_holders(new, starts) end
for _, n in ipairs(new) do
  local id = ARGV[starts[n]]
  if replaced[n] then
    redis.call('LREM', replaced[n], 1, id)
    redis.call('UNLINK', keys[n])
    add_to_total('purged_total', 1)
  elseif theirs and searched > 0 then
    if redis.call('LPOS', completed, id, 'RANK', -1, 'MAXLEN', MOST_SEARCHED) then
      redis.call('LREM', completed, -1, id)
    elseif has_own_ttls and redis.call('LPOS', completed, id, 'MAXLEN', NEWEST) then
      redis.call('LREM', completed, 1, id)
    end
    redis.call('LREM', failed, 1, id)
    redis.call('LREM', cancelled, 1, id)
  end
  if entry_left[n] then
    -- An entry of a cancelled job, whose record may be gone. If `pending` is too long to search, the old entry runs the
    -- new job, and the new entry is dropped later.
    redis.call('UNLINK', keys[n])
    if waiting <= MOST_WAITING then
      local old = #redis.call('LPOS', pending, id, 'COUNT', 0) - (status[n] == 'pending' and 1 or 0)
      if old > 0 then redis.call('LREM', pending, -old, id) end
      entry_left[n] = nil
    end
  end
  store(keys[n], starts[n], status[n], run_at[n])
  if entry_left[n] then redis.call('HSET', keys[n], 'entry_left', entry_left[n]) end
end
if #new == 0 and there then
  allow_when_full(delayed)
  local word = redis.call('HGET', jobs .. there, 'status')
  redis.call('HSET', jobs .. there, word and 'status' or 'id', word or there)
end
add_to_total('enqueued_total', #new)
if #now_ids > 0 then set_wake() end
if earliest < head then announce_due(earliest) end
