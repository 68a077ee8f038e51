--[[
Store new jobs and put each into `pending`, or into `delayed` when it is due later.

The first write is one that Redis refuses when memory is full, so the whole batch fails then and leaves no trace.
Own ids are fresh; a caller's id may have been here before: then the same payload changes nothing and another one is a
conflict; or the caller wants none to be there (`create`), or a finished one to be replaced (`reuse`). A mark in the
record tells a request that is sent again what its first sending has made. A caller's id may also stand in a history whose record has expired, so it is searched for there, in `completed`
at the old end only, where such entries are; the number of jobs taken per call sinks with the length of the histories. A call that stores nothing new writes what is there
once more, because WAIT and WAITAOF speak of what their own connection has written: who sends a job again must hear
of the replicas and the disk, and on a new connection a server may answer at once for one that only read.

KEYS  1 pending (list)  2 delayed (zset)  3 completed (list)  4 failed (list)  5 cancelled (list)  6 stats (hash)
      7 wake (zset)  8 paused (string)  9 promoter (string)
ARGV  1 jobs prefix  2 clock  3 due channel  4 max_pending or ''
      5 whether the ids are fresh (0), the caller's (1), or the caller's and some of them to be reused (2)
      6... per job: id, payload, 'in' | 'at', milliseconds, count of option values, option field, value, ...
         For a caller's id 'in' and 'at' may be followed by ':', 'create' | 'reuse' | '', ':' and the mark
Returns  per job STORED | EXISTS | CONFLICT | FULL | WRONGTYPE | TAKEN and the status of the job that is there | BUSY and
         its status; fewer answers than jobs means "send the rest again"
]]
local pending, delayed, completed, failed, cancelled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local stats, wake, paused, promoter = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local jobs, clock, due_channel, theirs = ARGV[1], ARGV[2], ARGV[3], ARGV[5] ~= '0'
local max_pending = tonumber(ARGV[4])
local LAST_INSTANT, MOST_SEARCHED, MOST_WAITING = 253402300799999, 2000, 100000
--@include _clock
--@include _guard
--@include _tally
--@include _wake

-- A new job's record, of the job that begins there in ARGV; `due`, if that is stored, is its instant as text.
local function store(key, at, status, due)
  local last = at + 4 + ARGV[at + 4]
  if due then
    redis.call('HSET', key, 'id', ARGV[at], 'payload', ARGV[at + 1], 'status', status, 'attempts', '0',
      'enqueued_at_ms', stamp, 'run_at_ms', due, unpack(ARGV, at + 5, last))
  else
    redis.call('HSET', key, 'id', ARGV[at], 'payload', ARGV[at + 1], 'status', status, 'attempts', '0',
      'enqueued_at_ms', stamp, unpack(ARGV, at + 5, last))
  end
end

-- One fresh job for now is what most calls bring: it needs nothing of what follows.
local i = 6
if not theirs and not max_pending and ARGV[i + 2] == 'in' and ARGV[i + 3] == '0' and #ARGV == i + 4 + ARGV[i + 4] then
  local id, key = ARGV[i], jobs .. ARGV[i]
  if redis.call('EXISTS', key) == 0 then
    local length = redis.pcall('LPUSH', pending, id)
    if type(length) == 'table' then return misfit('list', pending) or length end
    store(key, i, 'pending')
    tally('enqueued_total', 1)
    set_wake()
    return {'STORED'}
  end
end
--@include _job
--@include _due
local bad = misfit('list', pending) or misfit('zset', delayed)
  or (theirs and misfit('list', completed, failed, cancelled) or nil)
if bad then return bad end

local waiting, searched = redis.call('LLEN', pending), 0
if theirs then
  searched = redis.call('LLEN', completed)
  if ARGV[5] == '1' then searched = math.min(searched, MOST_SEARCHED) end
  searched = searched + redis.call('LLEN', failed) + redis.call('LLEN', cancelled)
end
local allowance = theirs and math.max(1, math.floor(100000 / (searched + 100))) or 1000

-- Where in ARGV the jobs begin, and their keys. Mostly none of them is there, and one look at all says so.
local starts, keys = {}, {}
while i <= #ARGV and #starts < allowance do
  starts[#starts + 1], keys[#keys + 1] = i, jobs .. ARGV[i]
  i = i + 5 + ARGV[i + 4]
end
local is_any_there = redis.call('EXISTS', unpack(keys)) > 0

local LISTS = {completed = completed, failed = failed, cancelled = cancelled}
local replaced = {}    -- number of a job -> the history in which the one stands whose id it takes
local entry_left = {}  -- number of a job -> how many entries one of that id that was cancelled has in `pending` still

-- What becomes of a job whose id is there; nil if it is to be stored.
local function existing(n, payload, wish, own_mark)
  if redis.call('EXISTS', keys[n]) == 0 then return nil end
  local stored = redis.pcall('HMGET', keys[n], 'payload', 'status', 'made_by', 'entry_left', 'tombstone')
  if stored.err then return 'WRONGTYPE' end
  entry_left[n] = stored[4]
  if stored[5] then return nil end
  if own_mark and stored[3] == own_mark then return 'STORED' end
  local status = stored[2] or 'pending'
  if wish == 'create' then return 'TAKEN ' .. status end
  if wish ~= 'reuse' then return stored[1] == payload and 'EXISTS' or 'CONFLICT' end
  if not LISTS[status] then return 'BUSY ' .. status end
  replaced[n] = LISTS[status]
end

-- The same for one that stands further to the front in this call.
local function repeated(n, payload, wish)
  if wish == 'create' then return 'TAKEN pending' end
  if wish == 'reuse' then return 'BUSY pending' end
  return payload == ARGV[starts[n] + 1] and 'EXISTS' or 'CONFLICT'
end

local answers, new, there = {}, {}, nil  -- numbers of the jobs to store; the id of one that is there already
local payloads = {}                      -- of callers' ids, which may come twice
local now_ids, later, status, run_at, earliest = {}, {}, {}, {}, LAST_INSTANT + 1
for n, at in ipairs(starts) do
  local id, payload, mode, ms = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local wish, own_mark
  if theirs and #mode > 2 then mode, wish, own_mark = string.match(mode, '^(%a+):(%a*):(.+)$') end
  local due = math.min(mode == 'in' and now + ms or ms, LAST_INSTANT)
  local is_later = due > now
  local answer
  if payloads[id] then
    answer = repeated(n, payloads[id], wish)
  elseif is_any_there then
    answer = existing(n, payload, wish, own_mark)
    if answer == 'EXISTS' or answer == 'STORED' then there, payloads[id] = id, payload end
  end
  if not answer and not is_later and max_pending and waiting >= max_pending then answer = 'FULL' end
  if not answer then
    answer, new[#new + 1] = 'STORED', n
    if theirs then payloads[id] = payload end
    if is_later or mode == 'at' then run_at[n] = digits(due) end
    status[n] = is_later and 'delayed' or 'pending'
    if is_later then
      later[#later + 1], later[#later + 2] = run_at[n], id
      earliest = math.min(earliest, due)
    else
      now_ids[#now_ids + 1] = id
      waiting = waiting + 1
    end
  end
  answers[n] = answer
end

local head = LAST_INSTANT + 1
if #later > 0 then
  head = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or head)
end

-- Its place first, then the job: an error in between leaves an id that has no data, for which a note is kept, and not a
-- job in no place, of which its producer would hear, when it sends it again, that it is there.
if #now_ids > 0 then redis.call('LPUSH', pending, unpack(now_ids)) end
if #later > 0 then redis.call('ZADD', delayed, unpack(later)) end
-- Of a job that was cancelled; it may be gone. Where `pending` is too long to be searched it comes first, and the new
-- entry is the stray.
local function drop_old_entry(n, id)
  redis.call('UNLINK', keys[n])
  if waiting > MOST_WAITING then return end
  local old = #redis.call('LPOS', pending, id, 'COUNT', 0) - (status[n] == 'pending' and 1 or 0)
  if old > 0 then redis.call('LREM', pending, -old, id) end
  entry_left[n] = nil
end

for _, n in ipairs(new) do
  local id = ARGV[starts[n]]
  if replaced[n] then
    redis.call('LREM', replaced[n], 1, id)
    redis.call('UNLINK', keys[n])
    tally('purged_total', 1)
  elseif theirs and searched > 0 then
    if redis.call('LPOS', completed, id, 'RANK', -1, 'MAXLEN', MOST_SEARCHED) then redis.call('LREM', completed, -1, id) end
    redis.call('LREM', failed, 1, id)
    redis.call('LREM', cancelled, 1, id)
  end
  if entry_left[n] then drop_old_entry(n, id) end
  store(keys[n], starts[n], status[n], run_at[n])
  if entry_left[n] then redis.call('HSET', keys[n], 'entry_left', entry_left[n]) end
end
if #new == 0 and there then
  open_memory(delayed)
  redis.call('HSET', jobs .. there, 'id', there)
end
tally('enqueued_total', #new)
if #now_ids > 0 then set_wake() end
if earliest < head then announce_due(earliest) end
return answers
