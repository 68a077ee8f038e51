--[[
Add what a worker has counted since its last report to the figures of tasks.

Each task has a field for all time, one for each of the last 48 hours, and one for each 5 minutes of the last two hours.
If there are more than 1,000 fields, the oldest go first. A report that was added before, because its reply was lost, is
not added again.

KEYS  this_worker (hash), task_stats (hash)
ARGV  clock
      number (number): of the report; a worker's numbers ascend
      counted...: per task: its name, and what was counted as in model/task_stats.py
Returns  1 if the report was added, 0 if it had been added before
]]
local MOST_FIELDS, MOST_TASKS, OTHERS, SPANS = 1000, 300, '(other)', {h = {3600000, 48}, m = {300000, 24}}
--@include clock
--@include checks
--@include numbers
local bad = wrong_type('hash', this_worker, task_stats)
if bad then return bad end
if whole(redis.call('HGET', this_worker, 'counted')) >= number then return 0 end

local function add_bins(sums, text)
  for bin, count in string.gmatch(text, '(%d+):(%d+)') do
    bin = tonumber(bin)
    sums[bin] = (sums[bin] or 0) + whole(count)
  end
end

local function bins_text(sums)
  local order, words = {}, {}
  for bin in pairs(sums) do order[#order + 1] = bin end
  table.sort(order)
  for i, bin in ipairs(order) do words[i] = digits(bin) .. ':' .. digits(sums[bin]) end
  return table.concat(words, ' ')
end

local function split(text) return string.match(text, '^([%d ]*)|([%d ]*)|([%d: ]*)|([%d: ]*)$') end

-- Two lists of numbers, joined one by one.
local function joined(one, other, join)
  local found, result = {}, {}
  for number in string.gmatch(one, '%d+') do found[#found + 1] = whole(number) end
  for number in string.gmatch(other, '%d+') do
    result[#result + 1] = digits(join(found[#result + 1] or 0, whole(number)))
  end
  return table.concat(result, ' ')
end

local function plus(one, other) return one + other end

local function sum(stored, counted)
  local numbers, longest, run, late = split(stored or '')
  if not numbers then return counted end  -- new, or damaged
  local more, more_longest, more_run, more_late = split(counted)
  local run_bins, late_bins = {}, {}
  add_bins(run_bins, run)
  add_bins(run_bins, more_run)
  add_bins(late_bins, late)
  add_bins(late_bins, more_late)
  return table.concat({joined(numbers, more, plus), joined(longest, more_longest, math.max), bins_text(run_bins),
    bins_text(late_bins)}, '|')
end

local function begin_of(span) return floor(now / SPANS[span][1]) * SPANS[span][1] end

-- HKEYS is not in the rules that Redis users of earlier releases have.
local function field_names()
  local names, stored = {}, redis.call('HGETALL', task_stats)
  for n = 1, #stored, 2 do names[#names + 1] = stored[n] end
  return names
end

-- Delete what is older than its span, or from a time that Redis's clock has not reached, and the oldest fields above the
-- limit. A field of an hour counts as old as its end, so that hours outlive the minutes within them.
local function sweep()
  local aged, kept = {}, 0
  for _, name in ipairs(field_names()) do
    local span, begin = string.match(name, '^([hm])(%d+):')
    begin = tonumber(begin)
    if not span then
      kept = kept + 1
    elseif begin > now or begin <= now - SPANS[span][1] * SPANS[span][2] then
      redis.call('HDEL', task_stats, name)
    else
      aged[#aged + 1] = {begin + (span == 'h' and SPANS.h[1] or 0), name}
    end
  end
  table.sort(aged, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  for i = 1, #aged + kept - MOST_FIELDS do
    if not aged[i] then break end
    redis.call('HDEL', task_stats, aged[i][2])
  end
end

local minute, hour = 'm' .. digits(begin_of('m')) .. ':', 'h' .. digits(begin_of('h')) .. ':'
local is_new, tasks = false, nil
for i = counted_start, #ARGV, 2 do
  local task, counts = ARGV[i], ARGV[i + 1]
  local names = {'t:' .. task, hour .. task, minute .. task}
  local stored = redis.call('HMGET', task_stats, unpack(names))
  if not stored[1] and lengths[task_stats] >= MOST_TASKS then
    -- Names without end, as of payloads that call no task of ours, must not fill the memory.
    if not tasks then
      tasks = 0
      for _, name in ipairs(field_names()) do
        if string.sub(name, 1, 2) == 't:' then tasks = tasks + 1 end
      end
    end
    if tasks >= MOST_TASKS then
      names = {'t:' .. OTHERS, hour .. OTHERS, minute .. OTHERS}
      stored = redis.call('HMGET', task_stats, unpack(names))
    else
      tasks = tasks + 1
    end
  end
  is_new = is_new or not stored[3]
  redis.call('HSET', task_stats, names[1], sum(stored[1], counts), names[2], sum(stored[2], counts), names[3],
    sum(stored[3], counts))
end
if is_new then sweep() end
if redis.call('EXISTS', this_worker) == 1 then redis.call('HSET', this_worker, 'counted', digits(number)) end
return 1
