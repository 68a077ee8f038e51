--[[
Take a sample of the queue every 10 s, for charts and rates; only the holder of the promoter lease does it.

Whether a sample is due depends on the last stored one, so a change of holder causes no extra or irregular samples. While
nothing changes, only the first and the last sample are kept. If memory is full, or a key has the wrong type, no sample
is written.

A sample is a line of numbers with spaces between them, '-' for none; `_STORED` in inspect/samples.py names them. So a busy
queue's samples take less than 100 kB. Beyond the newest 360 lines one for each minute is kept, with the largest times of
that minute. The release before wrote JSON objects, and kept 2,160 of them.

A queue that is empty and was not used for eight days costs only its totals and settings: its samples and its log are deleted.
The field `unused` of `stats` has its totals and depths from then on, and there are no samples until they change. `log_end` is the last
entry of a log that was deleted; see inspect/archive.py.

KEYS  promoter (string), samples (list), pending (list), delayed (zset), processing (list), completed (list),
      failed (list), stats (hash), workers (zset), held (zset), log (stream)
ARGV  jobs, clock
      promoter_id: the caller's id
      silence_ms (number)
Returns  ms until the next one is due
]]
local SPACING_MS, MINUTE_MS, MOST_ENDED, MOST_READ = 10000, 60000, 100, 1999
local HOUR_MS, UNUSED_MS = 3600000, 691200000
local RECENT, KEPT = 360, 660  -- lines; those beyond the recent ones are a minute apart
--@include clock
--@include checks
--@include numbers
--@include ready_since
local bad = wrong_type('list', samples, pending, processing, completed, failed) or wrong_type('zset', delayed, workers, held)
  or wrong_type('hash', stats)
-- A damaged key is reported by the processes that need it, and by `schedq doctor`.
if bad or redis.pcall('GET', promoter) ~= promoter_id then return SPACING_MS end

local function instant_of(line) return whole(string.match(line, '^(%d+) ') or string.match(line, '^{"at_ms":(%d+),')) end
local function taken_at(place)
  local line = redis.call('LINDEX', samples, place)
  return line and instant_of(line), line
end
local last, newest = taken_at(0)
-- Samples from the future were taken before the clock went back.
for _ = 1, 100 do
  if not newest or last <= now then break end
  redis.call('LPOP', samples)
  last, newest = taken_at(0)
end
if newest and (last > now or now - last < SPACING_MS) then return math.max(1, math.min(last + SPACING_MS - now, SPACING_MS)) end
local since = math.max(last or 0, now - 2 * SPACING_MS)

local values = {}
local function put(value) values[#values + 1] = value and digits(value) or '-' end

local function put_spread(times)
  table.sort(times)
  put(times[math.ceil(#times * 0.5)])
  put(times[math.ceil(#times * 0.99)])
end

local totals = {'enqueued_total', 'completed_total', 'failed_total', 'retried_total', 'reclaimed_total'}
local counted = redis.call('HMGET', stats, 'unused', unpack(totals))
for n = 1, #totals do put(whole(counted[n + 1])) end
put(redis.call('LLEN', pending) + redis.call('ZCARD', held))
put(redis.call('ZCARD', delayed))
put(redis.call('LLEN', processing))
put(redis.call('LLEN', failed))
-- Totals and depths: while they stay the same, the queue is not used.
local use, USE = table.concat(values, ' '), '^%d+ (' .. string.rep('%d+ ', 8) .. '%d+) '
local unused = counted[1]
if not newest and unused == use then return SPACING_MS end

local due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
due = due and math.max(0, math.min(due, 253402300799999))
put(due and math.ceil(due))
local next_id = redis.call('LINDEX', pending, -1)
local job = next_id and redis.pcall('HMGET', jobs .. next_id, unpack(READY))
put((job and not job.err) and waited(job) or 0)
put(redis.call('ZCOUNT', workers, now - silence_ms, now + silence_ms))

local fields, late, took = {unpack(READY)}, {}, {}
fields[#fields + 1], fields[#fields + 2] = 'started_at_ms', 'completed_at_ms'
for _, id in ipairs(redis.call('LRANGE', completed, 0, MOST_ENDED - 1)) do
  local ended = redis.pcall('HMGET', jobs .. id, unpack(fields))
  local started, completed_at = whole(ended[8]), whole(ended[9])
  if not ended.err and completed_at > 0 then
    if completed_at <= since then break end
    local ready = ready_at(ended, started)
    if ready then late[#late + 1] = started - ready end
    if started > 0 then took[#took + 1] = math.max(0, completed_at - started) end
  end
end
put(#took)
put_spread(late)
put_spread(took)

local OLDEST_PENDING, MEASURED, LATENESS_P99, RUN_P99 = 12, 14, 16, 18
-- The newer line, with the largest times of both, and with the older one's measurements if it has none; nil if they are
-- not of one minute. Lines of a release before stay as they are.
local function one_of(newer, older)
  if floor(instant_of(newer) / MINUTE_MS) ~= floor(instant_of(older) / MINUTE_MS) then return nil end
  local words, earlier = {}, {}
  for word in string.gmatch(newer, '%S+') do words[#words + 1] = word end
  for word in string.gmatch(older, '%S+') do earlier[#earlier + 1] = word end
  if #words ~= RUN_P99 or #earlier ~= RUN_P99 then return newer end
  for n = MEASURED, words[MEASURED] == '0' and RUN_P99 or 0 do words[n] = earlier[n] end
  for _, n in ipairs({OLDEST_PENDING, LATENESS_P99, RUN_P99}) do
    if (tonumber(earlier[n]) or -1) > (tonumber(words[n]) or -1) then words[n] = earlier[n] end
  end
  return table.concat(words, ' ')
end

-- Keep one line for each minute beyond the recent ones. Each new line moves one of these there.
local function thin_out()
  local length = redis.call('LLEN', samples)
  if length <= KEPT + 1 then
    local newer, older = unpack(redis.call('LRANGE', samples, RECENT, RECENT + 1))
    local one = older and one_of(newer, older)
    if one then
      redis.call('LSET', samples, RECENT, one)
      redis.call('LREM', samples, -1, older)
    end
  else
    -- A process of the release before has taken samples.
    local lines = redis.call('LRANGE', samples, RECENT, RECENT + MOST_READ)
    local kept = {lines[1]}
    for n = 2, #lines do
      local one = one_of(kept[#kept], lines[n])
      kept[one and #kept or #kept + 1] = one or lines[n]
    end
    redis.call('LTRIM', samples, 0, RECENT - 1)
    redis.call('RPUSH', samples, unpack(kept, 1, math.min(#kept, KEPT - RECENT)))
  end
  redis.call('LTRIM', samples, 0, KEPT - 1)
end

-- Whether the queue has been empty and unused for long. Looked at once an hour.
local function has_rested()
  if not newest or floor(last / HOUR_MS) == floor(now / HOUR_MS) or not string.find(use, ' 0 0 0 0$') then return false end
  local since = now
  for _, line in ipairs(redis.call('LRANGE', samples, 0, MOST_READ)) do
    if string.match(line, USE) ~= use then break end
    since = instant_of(line)
  end
  return now - since >= UNUSED_MS
end

-- Delete what an unused queue need not have; false if its log has a newer entry. A log with consumer groups is kept.
local function forget()
  local entry = redis.pcall('XREVRANGE', log, '+', '-', 'COUNT', 1)
  if entry.err then return false end
  local id, facts = unpack(entry[1] or {})
  for n = 1, #(facts or {}), 2 do
    if facts[n] == 'at_ms' and now - whole(facts[n + 1]) < UNUSED_MS then return false end
  end
  local groups = id and redis.pcall('XINFO', 'GROUPS', log)
  redis.call('DEL', samples)
  redis.call('HSET', stats, 'unused', use)
  if groups and #groups == 0 and not groups.err then
    redis.call('HSET', stats, 'log_end', id)
    redis.call('DEL', log)
  end
  return true
end
if has_rested() and forget() then return SPACING_MS end

local facts = table.concat(values, ' ')
local taken = stamp .. ' ' .. facts
local function is_same(line) return line and string.gsub(line, '^%d+ ', '', 1) == facts end
if unused then
  redis.call('HDEL', stats, 'unused')
  -- What it was before the change, so that rates and charts show the change.
  if not newest then redis.pcall('LPUSH', samples, digits(now - SPACING_MS) .. ' ' .. unused .. ' - 0 0 0 - - - -') end
end
-- The first write; if Redis refuses it because memory is full, there is no sample.
local _, before = taken_at(1)
if is_same(newest) and is_same(before) then
  redis.pcall('LSET', samples, 0, taken)
elseif not (type(redis.pcall('LPUSH', samples, taken)) == 'table') then
  thin_out()
end
return SPACING_MS
