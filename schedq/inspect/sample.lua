--[[
Take a sample of the queue every 10 s, for charts and rates; only the holder of the promoter lease does it.

Whether a sample is due depends on the last stored one, so a change of holder causes no extra or irregular samples. While
nothing changes, only the first and the last sample are kept. If memory is full, or a key has the wrong type, no sample
is written.

KEYS  promoter (string), samples (list), pending (list), delayed (zset), processing (list), completed (list),
      failed (list), stats (hash), workers (zset), held (zset)
ARGV  jobs, clock
      promoter_id: the caller's id
      silence_ms (number)
Returns  ms until the next one is due
]]
local SPACING_MS, KEPT, MOST_ENDED = 10000, 2160, 100
--@include clock
--@include checks
--@include numbers
--@include ready_since
local bad = wrong_type('list', samples, pending, processing, completed, failed) or wrong_type('zset', delayed, workers, held)
  or wrong_type('hash', stats)
-- A damaged key is reported by the processes that need it, and by `schedq doctor`.
if bad or redis.pcall('GET', promoter) ~= promoter_id then return SPACING_MS end

local function taken_at(place)
  local text = redis.call('LINDEX', samples, place)
  return text and whole(string.match(text, '^{"at_ms":(%d+),')), text
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

local text = {}
local function put(name, value) text[#text + 1] = ',"' .. name .. '":' .. (value and digits(value) or 'null') end

local function put_spread(name, values)
  table.sort(values)
  put(name .. '_p50_ms', values[math.ceil(#values * 0.5)])
  put(name .. '_p99_ms', values[math.ceil(#values * 0.99)])
end

local totals = {'enqueued_total', 'completed_total', 'failed_total', 'retried_total', 'reclaimed_total'}
local counted = redis.call('HMGET', stats, unpack(totals))
for n, name in ipairs(totals) do put(name, whole(counted[n])) end
put('pending_depth', redis.call('LLEN', pending) + redis.call('ZCARD', held))
put('delayed_depth', redis.call('ZCARD', delayed))
put('processing_depth', redis.call('LLEN', processing))
put('failed_depth', redis.call('LLEN', failed))

local due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
due = due and math.max(0, math.min(due, 253402300799999))
put('next_due_ms', due and math.ceil(due))
put('overdue_ms', due and math.max(0, now - math.ceil(due)) or 0)
local next_id = redis.call('LINDEX', pending, -1)
local job = next_id and redis.pcall('HMGET', jobs .. next_id, unpack(READY))
put('oldest_pending_ms', (job and not job.err) and waited(job) or 0)
put('workers', redis.call('ZCOUNT', workers, now - silence_ms, now + silence_ms))

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
put('measured', #took)
put_spread('lateness', late)
put_spread('run', took)

local facts = table.concat(text) .. '}'
local taken = '{"at_ms":' .. stamp .. facts
-- The first write; if Redis refuses it because memory is full, there is no sample.
local _, before = taken_at(1)
if newest and before and string.gsub(newest, '^[^,]+', '', 1) == facts and string.gsub(before, '^[^,]+', '', 1) == facts then
  redis.pcall('LSET', samples, 0, taken)
elseif not (type(redis.pcall('LPUSH', samples, taken)) == 'table') then
  redis.call('LTRIM', samples, 0, KEPT - 1)
end
return SPACING_MS
