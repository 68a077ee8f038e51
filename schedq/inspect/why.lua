--[[
Read everything that decides whether a job runs, at one instant, as a claim and a reclaimer would see it; writes nothing.

KEYS  pending (list), processing (list), leases (zset), delayed (zset), completed (list), failed (list),
      cancelled (list), broken (list), paused (string), promoter (string), workers (zset), wake (zset), suspects (zset),
      held (zset)
ARGV  jobs, clock
      id: the job
      silence_ms (number)
      entries (number): how many to search from each end of a list
Returns  {now, due instant or '', end of its lease or '', 1 if it is in `processing`, else 0, entries before it in
         `pending`, or in its lane if it is held, or -1, how many are pending, length of `processing`, paused since or '', promoter or '', ms left of the
         promoter's lease, live workers, 1 if the wake marker is set, else 0, jobs that ended recently, ms in which they
         did, worker of the last one or '', history with its id but no record, or '', note in `broken` or '', type of
         what is stored, {field, value, ...}, 1 if claims passed it over into `delayed`, else 0, 1 if it is held, else 0}
]]
local RECENT_MS, MOST_COUNTED, MOST_FIELDS, MOST_NOTES = 60000, 10000, 2000, 1000
local LANE = 2147483648  -- as in shared/lanes.lua
--@include clock
--@include checks
--@include numbers
local bad = wrong_type('list', pending, processing, completed, failed, cancelled, broken)
  or wrong_type('zset', leases, delayed, workers, wake, held)
if bad then return bad end

-- The index of the id in a list; only the ends of a long list are searched.
local function find(list)
  local from_right = redis.call('LPOS', list, id, 'RANK', -1, 'MAXLEN', entries)
  if from_right or redis.call('LLEN', list) <= entries then return from_right end
  return redis.call('LPOS', list, id, 'MAXLEN', entries)
end

-- How many jobs of a history ended recently, how long ago the oldest of them, and when and by which worker the newest.
local function ended(history, field)
  local function look(n) return redis.pcall('HMGET', jobs .. redis.call('LINDEX', history, n), field, 'worker') end
  local length = math.min(redis.call('LLEN', history), MOST_COUNTED)
  local low, high, age = 0, length, 0
  while low < high do
    local middle = math.floor((low + high) / 2)
    local at = whole(look(middle)[1])
    if at >= now - RECENT_MS then low, age = middle + 1, math.max(0, now - at) else high = middle end
  end
  if low == 0 then return 0, 0, 0, '' end
  local newest = look(0)
  return low, low < length and RECENT_MS or age, whole(newest[1]), newest[2] or ''
end

local kind, fields = redis.call('TYPE', jobs .. id).ok, {}
if kind == 'hash' and redis.call('HLEN', jobs .. id) <= MOST_FIELDS then fields = redis.call('HGETALL', jobs .. id) end

local length, ahead = redis.call('LLEN', pending), find(pending)
ahead = ahead and length - 1 - ahead or -1
local position = redis.call('ZSCORE', held, id)
if position then
  ahead = redis.call('ZCOUNT', held, digits(math.floor(tonumber(position) / LANE) * LANE), '(' .. position)
end
local lease = redis.call('ZSCORE', leases, id) or ''
local runs = ((tonumber(lease) or 0) > 0 or find(processing)) and 1 or 0

local place, note = '', ''
if kind ~= 'hash' then
  for name, list in pairs({completed = completed, failed = failed, cancelled = cancelled}) do
    if find(list) then place = name end
  end
  for _, text in ipairs(redis.call('LRANGE', broken, 0, MOST_NOTES - 1)) do
    if note == '' and string.find(text, '{"id":"' .. id .. '",', 1, true) == 1 then note = text end
  end
end

local done, done_ms, done_at, done_by = ended(completed, 'completed_at_ms')
local lost, lost_ms, lost_at, lost_by = ended(failed, 'last_error_at_ms')

local since = redis.call('EXISTS', paused) == 1 and redis.pcall('GET', paused) or ''
local holder = redis.pcall('GET', promoter)
holder = type(holder) == 'string' and holder or ''
local due = redis.call('ZSCORE', delayed, id) or ''
local rests = due ~= '' and redis.pcall('ZSCORE', suspects, id) == due and 1 or 0

return {now, due, lease, runs, ahead, length + redis.call('ZCARD', held), redis.call('LLEN', processing),
  type(since) == 'string' and since or '0', holder, holder ~= '' and redis.call('PTTL', promoter) or 0, redis.call('ZCOUNT', workers, now - silence_ms,
  now + silence_ms), redis.call('EXISTS', wake), done + lost, math.max(done_ms, lost_ms),
  done_at >= lost_at and done_by or lost_by, place, note, kind, fields,
  rests, position and 1 or 0}
