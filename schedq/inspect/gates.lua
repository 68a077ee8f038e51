--[[
What gates have and do, and a page of the keys that wait in them; writes nothing.

KEYS  gates (hash), gate_holds (zset), resting (zset), held (zset), lanes (hash), processing (list)
ARGV  jobs, clock, gate_keys
      cursor: '0' for the first page, which also describes the gates; then what the previous one returned
      count (number): about how many keys to look at
      only: the name of a gate, '' for the queue's own limits, or '*' for all gates and the queue
      wants_keys (flag): describe the keys of the page, and those that only run jobs or are held
Returns  {now, next cursor, '0' at the end, gates, sums, keys}
         gates: {{name, limits in force, those of the code or '', those set by an operator or '', condition, its end or '',
           cause, jobs running, ready keys, resting keys, 1 if these are all, else 0, start of the job that runs longest or
           '', 1 if all running jobs were looked at, else 0}, ...}
         sums: {name of a gate, waiting jobs, keys, ...} of the page
         keys: {{gate, key, waiting, running, condition, its end or '', cause}, ...}
]]
local MOST_GATES, MOST_RESTING, MOST_OTHERS, ALL_STARTED = 1000, 1000, 200, 400
--@include clock
--@include checks
--@include numbers
--@include in_lane
--@include gate_facts
--@include gate_state
local bad = wrong_type('hash', gates, lanes) or wrong_type('zset', gate_holds, resting, held) or wrong_type('list', processing)
if bad then return bad end

local function is_wanted(name) return only == '*' or name == only end

-- All fields of `gates`; those of a hash that no application writes are cut.
local function definitions_by_field()
  local all = redis.call('HLEN', gates) <= 3 * MOST_GATES
  local flat = all and redis.call('HGETALL', gates) or redis.call('HSCAN', gates, '0', 'COUNT', MOST_GATES)[2]
  local found, names = {}, {}
  for n = 1, #flat, 2 do
    found[flat[n]] = flat[n + 1]
    if not string.find(flat[n], ' ', 1, true) and is_wanted(flat[n]) then names[#names + 1] = flat[n] end
  end
  return found, names
end

local function resting_keys()
  local members, counts = redis.call('ZRANGE', resting, 0, MOST_RESTING - 1), {}
  for _, name in ipairs(members) do
    local gate = string.match(name, '^(%S+) ')
    if gate then counts[gate] = (counts[gate] or 0) + 1 end
  end
  return counts, #members < MOST_RESTING and 1 or 0
end

local function describe_gates()
  local found, names = definitions_by_field()
  local counts, is_all = resting_keys()
  local most = math.max(4, math.min(MOST_STARTED, math.floor(ALL_STARTED / math.max(1, #names))))
  local rows = {}
  for _, name in ipairs(names) do
    local gate = gate_of(name)
    local is_gate = name ~= '' and not gate.is_damaged
    local running = name == '' and redis.call('LLEN', processing) or is_gate and redis.call('ZCARD', gate.running) or 0
    local members = is_gate and redis.call('ZRANGE', gate.running, 0, most - 1) or {}
    local state, at, cause = state_of_gate(gate, running)
    rows[#rows + 1] = {name, found[name], found[name .. ' code'] or '', found[name .. ' set'] or '', state, at, cause, running,
      is_gate and redis.call('ZCARD', gate.ready) or 0, counts[name] or 0, is_all, earliest_start(members),
      running <= #members and 1 or 0}
  end
  return rows
end

local keys, seen, sums, by_gate = {}, {}, {}, {}
local function describe_key(gate, key, number, waiting)
  if seen[key] then return end
  seen[key] = true
  local running = gate.is_damaged and 0 or runs_of(gate, key)
  local state, at, cause = state_of_key(gate, key, number, running)
  keys[#keys + 1] = {gate.name, key, waiting, running, state, at, cause}
end

-- Keys without a lane, of which jobs run or which are held.
local function describe_others(gate)
  local names = {}
  if not gate.is_damaged then
    for _, name in ipairs(redis.call('ZRANGE', gate.running, 0, MOST_OTHERS - 1)) do
      names[#names + 1] = string.match(name, '^(.*) %S*$')
    end
  end
  for _, name in ipairs(redis.call('ZRANGE', gate_holds, '+inf', stamp, 'BYSCORE', 'REV', 'LIMIT', 0, MOST_OTHERS)) do
    local holder, key = string.match(name, '^(%S+) (.*)$')
    if holder == gate.name then names[#names + 1] = key end
  end
  for _, key in ipairs(names) do
    if not lane_of_key(gate, key) then describe_key(gate, key, nil, 0) end
  end
end

local rows = cursor == '0' and describe_gates() or {}
if cursor == '0' and wants_keys then describe_others(gate_of(only)) end
local page = {'0', {}}
if only ~= '' then
  local pattern = only == '*' and 'gate:*' or 'gate:' .. only .. ' *'
  page = redis.call('HSCAN', lanes, cursor, 'MATCH', pattern, 'COUNT', count)
end
for n = 1, #page[2], 2 do
  local name, key = string.match(page[2][n], '^gate:(%S+) (.*)$')
  local number = whole(page[2][n + 1])
  if name and number > LANE_NUMBERS then
    local waiting = redis.call('ZCOUNT', held, scores_of(number))
    local sum = by_gate[name] or {0, 0}
    by_gate[name] = {sum[1] + waiting, sum[2] + 1}
    if wants_keys then describe_key(gate_of(name), key, number, waiting) end
  end
end
for name, sum in pairs(by_gate) do
  sums[#sums + 1], sums[#sums + 2], sums[#sums + 3] = name, sum[1], sum[2]
end
return {now, page[1], rows, sums, keys}
