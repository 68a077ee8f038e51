-- Needs clock, checks, numbers, lanes and wake; `gate_keys` is the prefix of the keys of gates, and the other keys have their own names.
--
-- Jobs that belong to a gate wait in lanes of `held`, one for each key of the gate; `lanes` has the number of each, as
-- `gate:GATE KEY`. A key with waiting jobs is in one of four conditions:
--   ready: some claim may start its next job now; it is in `ready` of its gate, with the tag of its turn.
--   resting: until an instant (a rate, a hold, a retry in order); `resting` has "GATE KEY" and the instant.
--   full: as many of its jobs run as may; whoever ends one of them looks at the key again.
--   paused: an operator looks at it again.
-- Full and paused keys are in no list, so nothing has to be removed when they change: `place` finds the condition from the
-- facts. A gate is in `open_gates` while it has ready keys and may start one; otherwise the same four conditions apply, with
-- "GATE" in `resting`. An instant in `resting` that has passed means "look again", so any script may ask for that.
--
-- `running` of a gate has "KEY ID" for each of its jobs with a lease, so it can't drift: it is written where leases are.
-- Turns are start-time fair queueing: a start moves the tag of its key on by STEP / weight, and the least tag is next.
-- Those who enter come behind those who entered before them.
local STEP, SOONEST = 1000, 5  -- of a start; ms
local opened, first_rest = false, nil
--@include gate_facts

local turns_to_write = {}  -- by name; written together at the end, and read from here until then

-- Of a gate: the tag that was served last, that of the last entrant, and the gate's own tag among the gates. Of the queue
-- (''): the tag that was served last, and that of the plain jobs.
local function turns_of(name, known)
  local text = turns_to_write[name] or known or redis.pcall('HGET', gate_turns, name)
  local first, second, third = string.match(type(text) == 'string' and text or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(first or 0), tonumber(second or 0), tonumber(third or 0)
end

local function write_turns(name, first, second, third)
  turns_to_write[name] = digits(first) .. ' ' .. digits(second) .. ' ' .. digits(third)
end

local function read_turns(gate, known)
  if not gate.present then gate.present, gate.entrant, gate.tag = turns_of(gate.name, known) end
end

-- Count `count` new lanes; returns how many were made before. If `lanes` was lost, the count continues behind the last lane
-- that has jobs, and the promoter looks at all lanes.
local function count_lanes(count)
  local made = redis.pcall('HINCRBY', lanes, 'gates_made', count)
  if type(made) ~= 'number' then  -- damaged, so it is lost
    redis.call('HDEL', lanes, 'gates_made')
    made = redis.call('HINCRBY', lanes, 'gates_made', count)
  end
  local last = made == count and tonumber(redis.call('ZRANGE', held, -1, -1, 'WITHSCORES')[2])
  if last and last >= (LANE_NUMBERS + 1) * LANE then
    made = math.min(math.floor(last / LANE), ALL_LANES) - LANE_NUMBERS + count
    redis.call('HSET', lanes, 'gates_made', made)
    redis.pcall('HSETNX', gate_turns, ' look', '1')
  end
  return made - count
end

-- Give new lanes their numbers. They come round again after millions, when an old lane may still have jobs.
local function make_lanes(new)
  local made, words = count_lanes(#new), {}
  for n, lane in ipairs(new) do
    local index, number = made + n - 1, nil
    for _ = 1, 20 do
      number = LANE_NUMBERS + 1 + index % (ALL_LANES - LANE_NUMBERS)
      if index < ALL_LANES - LANE_NUMBERS or #in_lane(number, 1) == 0 then break end
      index = count_lanes(1)
    end
    lane.ends, words[2 * n - 1], words[2 * n] = ends_of(number, true), 'gate:' .. member(lane.gate, lane.key), number
  end
  redis.call('HSET', lanes, unpack(words))
end

-- The theoretical arrival times of rates, as of GCRA, read together: one list for the gate ('') or for each key (" KEY"). One
-- that lies further ahead than starts can have put it is from before the clock went back, and it would stay as far ahead if
-- it were not written.
local function tats_of(gate, rates, suffixes)
  local found, names = {}, {}
  for i = 1, #suffixes do found[i] = {} end
  for n, rate in ipairs(rates) do
    for i, suffix in ipairs(suffixes) do names[i] = rate.name .. suffix end
    local scores, most, cut = redis.pcall('ZMSCORE', gate.tats, unpack(names)), now + rate.burst * rate.spacing, {}
    for i = 1, #suffixes do
      local tat = tonumber(scores[i] or 0)
      if tat > most then cut[#cut + 1], cut[#cut + 2] = format('%.17g', most), names[i] end
      found[i][n] = math.min(tat, most)
    end
    if #cut > 0 then redis.pcall('ZADD', gate.tats, unpack(cut)) end
  end
  return found
end

local function tats_of_gate(gate)
  if not gate.own_tats then gate.own_tats = tats_of(gate, gate.rates, {''})[1] end
  return gate.own_tats
end

-- The instant from which on a start conforms to all rates, or nil if one does now.
local function rate_ends(rates, tats)
  local at
  for n, rate in ipairs(rates) do
    local from = tats[n] - (rate.burst - 1) * rate.spacing
    if from - now > 1e-6 then
      local soonest = now + math.min(SOONEST, math.ceil(rate.burst / 2) * rate.spacing)
      at = math.max(at or 0, math.ceil(from), math.floor(soonest))
    end
  end
  return at
end

-- How many starts conform now to all rates.
local function starts_allowed(rates, tats)
  local count = FOREVER
  for n, rate in ipairs(rates) do
    local base = math.max(tats[n], now)
    count = math.min(count, math.max(0, math.floor((now - base) / rate.spacing + 1e-9) + rate.burst))
  end
  return count
end

-- Add starts to `tats`, and to `words`, which are written by ZADD.
local function charge(rates, tats, suffix, starts, words)
  for n, rate in ipairs(rates) do
    tats[n] = math.max(tats[n], now) + starts * rate.spacing
    words[#words + 1], words[#words + 2] = format('%.17g', tats[n]), rate.name .. suffix
  end
end

-- What rates and held keys of several entries need, read together.
local function read_tats(gate, entries)
  if not gate.key_rates[1] or #entries == 0 then return end
  local suffixes = {}
  for i, entry in ipairs(entries) do suffixes[i] = ' ' .. entry.key end
  for i, tats in ipairs(tats_of(gate, gate.key_rates, suffixes)) do entries[i].tats = tats end
end

-- When the key may start its next job: nil for now, FOREVER if another script will look at it again, or an instant. An entry
-- has the `key`, the first job of its lane as `head`, its `tats`, and maybe how many of its jobs run.
local function key_waits(gate, entry)
  local at = held_until(member(gate, entry.key))
  if at == FOREVER then return at end
  if gate.key_concurrency and (entry.running or runs_of(gate, entry.key)) >= gate.key_concurrency then return FOREVER end
  if gate.serial and entry.head then  -- a retry keeps its place, and its key waits for it
    local due = whole(redis.pcall('HGET', jobs .. entry.head, 'retry_at_ms'))
    if due > now then at = math.max(at or 0, due) end
  end
  local allowed = gate.key_rates[1] and rate_ends(gate.key_rates, entry.tats)
  return allowed and math.max(at or 0, allowed) or at
end

-- Let keys and gates rest: {instant, name, instant, name...}
local function rest(words)
  if not first_rest then
    first_rest = {before = tonumber(redis.call('ZRANGE', resting, 0, 0, 'WITHSCORES')[2] or FOREVER), earliest = FOREVER}
  end
  for n = 1, #words, 2 do
    first_rest.earliest = math.min(first_rest.earliest, words[n])
    words[n] = digits(words[n])
  end
  redis.call('ZADD', resting, unpack(words))
end

-- A gate with ready keys: open it, or let it rest. `tag`: it was open, and this is the tag of its next turn, which is added
-- to `opens`.
local function open_gate(gate, tag, opens)
  local at = gate.is_damaged and FOREVER or held_until(gate.name)
  local running = gate.concurrency and (tag and gate.counts[gate.running] or redis.call('ZCARD', gate.running))
  if not at and running and running >= gate.concurrency then at = FOREVER end
  if at ~= FOREVER then
    local allowed = gate.rates[1] and rate_ends(gate.rates, tats_of_gate(gate))
    at = allowed and math.max(at or 0, allowed) or at
  end
  gate.is_open = not at
  if not at then
    opened = true
    if tag then
      opens[#opens + 1], opens[#opens + 2] = digits(tag), gate.name
      return true
    end
    if not redis.call('ZSCORE', open_gates, gate.name) then
      read_turns(gate)
      redis.call('ZADD', open_gates, digits(math.max(turns_of(''), gate.tag)), gate.name)
    end
    redis.call('ZREM', resting, gate.name)
    return true
  end
  if at ~= FOREVER then rest({at, gate.name}) end
  redis.call('ZREM', open_gates, gate.name)
  return false
end

-- Keys that have no jobs in their lanes.
local function forget_keys(gate, keys, names)
  local fields = {}
  for n, name in ipairs(names) do fields[n] = 'gate:' .. name end
  redis.call('ZREM', gate.ready, unpack(keys))
  redis.call('ZREM', resting, unpack(names))
  redis.call('HDEL', lanes, unpack(fields))
end

-- The tag with which a key gets its next turn: `before`, its own, if that lies ahead, else it comes behind the last entrant.
local function tag_of_turn(gate, before)
  local tag = before and tonumber(before) or -1
  if tag >= gate.present then return tag end
  gate.entrant, gate.has_entrants = math.max(gate.present, gate.entrant + 1), true
  return gate.entrant
end

-- Keys that may start now: add those to `ready` that are not there, in this order.
local function make_ready(gate, keys)
  local there, entering, words = redis.call('ZMSCORE', gate.ready, unpack(keys)), {}, {}
  for n, key in ipairs(keys) do
    if not there[n] then entering[#entering + 1] = key end
  end
  if #entering > 0 then
    read_turns(gate)
    local tags = redis.pcall('ZMSCORE', gate.tags, unpack(entering))
    for n, key in ipairs(entering) do words[2 * n - 1], words[2 * n] = digits(tag_of_turn(gate, tags[n])), key end
    redis.call('ZADD', gate.ready, 'NX', unpack(words))
  end
  gate.has_ready = true
  if not gate.is_open then open_gate(gate) end
end

-- Keys that may not start now: keep the tags of those that leave `ready`.
local function leave_ready(gate, keys)
  local there, leaving, words = redis.call('ZMSCORE', gate.ready, unpack(keys)), {}, {}
  for n, key in ipairs(keys) do
    if there[n] then leaving[#leaving + 1], words[#words + 1], words[#words + 2] = key, there[n], key end
  end
  if #leaving == 0 then return end
  redis.pcall('ZADD', gate.tags, unpack(words))
  redis.call('ZREM', gate.ready, unpack(leaving))
end

local function read_numbers(gate, entries)
  local fields = {}
  for n, entry in ipairs(entries) do fields[n] = 'gate:' .. member(gate, entry.key) end
  for n, number in ipairs(redis.call('HMGET', lanes, unpack(fields))) do entries[n].number = whole(number) end
end

-- Give each of these keys the first job of its lane as `head`, and forget those that have none. Returns the others.
local function with_jobs(gate, entries)
  local found, gone, names = {}, {}, {}
  if not entries[1].number then read_numbers(gate, entries) end
  for _, entry in ipairs(entries) do
    local number = entry.number
    entry.head = entry.head or (number > LANE_NUMBERS and number <= ALL_LANES and in_lane(number, 1)[1])
    if entry.head then
      found[#found + 1] = entry
    else
      gone[#gone + 1], names[#names + 1] = entry.key, member(gate, entry.key)
    end
  end
  if #gone > 0 then forget_keys(gate, gone, names) end
  return found
end

-- Put keys into the conditions that follow from the facts. An entry has the `key`, each at most once, and maybe the `number`
-- of its lane and the first job there, as `head`. `are_nowhere`: the keys have jobs, and are neither in `ready` nor in `resting`.
local function place(gate, entries, are_nowhere)
  if gate.is_damaged or #entries == 0 then return end
  if not are_nowhere then
    entries = with_jobs(gate, entries)
    read_tats(gate, entries)
  end
  local ready, waiting, rests, awake = {}, {}, {}, {}
  for _, entry in ipairs(entries) do
    local at, name = key_waits(gate, entry), member(gate, entry.key)
    local list = at and waiting or ready
    list[#list + 1] = entry.key
    if at and at ~= FOREVER then
      rests[#rests + 1], rests[#rests + 2] = at, name
    else
      awake[#awake + 1] = name
    end
  end
  if #ready > 0 then make_ready(gate, ready) end
  if #rests > 0 then rest(rests) end
  if are_nowhere then return end
  if #waiting > 0 then leave_ready(gate, waiting) end
  if #awake > 0 then redis.call('ZREM', resting, unpack(awake)) end
end

-- What concerns each gate, in the order in which the gates come up.
local function each_gate(entries)
  local found, by_gate, n = {}, {}, 0
  for _, entry in ipairs(entries) do
    local list = by_gate[entry.gate]
    if not list then
      list = {}
      by_gate[entry.gate], found[#found + 1] = list, {entry.gate, list}
    end
    list[#list + 1] = entry
  end
  return function()
    n = n + 1
    if found[n] then return unpack(found[n]) end
  end
end

-- The lanes of these jobs' keys, which are made if there are none: in the order of their jobs, and by name.
local function lanes_of(entries)
  local touched, by_name, fields, new = {}, {}, {}, {}
  for _, entry in ipairs(entries) do
    local gate, key = gate_of(entry[2]), entry[3]
    local name = member(gate, key)
    if not by_name[name] then
      by_name[name] = {gate = gate, key = key}
      touched[#touched + 1], fields[#fields + 1] = by_name[name], 'gate:' .. name
    end
  end
  for n, text in ipairs(#fields > 0 and redis.call('HMGET', lanes, unpack(fields)) or {}) do
    local lane, number = touched[n], whole(text)
    if number > LANE_NUMBERS and number <= ALL_LANES then
      lane.ends = ends_of(number)
    else
      lane.is_new, new[#new + 1] = true, lane
    end
  end
  if #new > 0 then make_lanes(new) end
  return touched, by_name
end

-- Put jobs into the lanes of their keys: {id, gate, key, whether it is the next in line}.
local function enter(entries)
  local touched, by_name = lanes_of(entries)
  local placed = {}
  for n, entry in ipairs(entries) do
    local lane, is_next = by_name[entry[2] .. ' ' .. entry[3]], entry[4]
    lane.changes = lane.changes or lane.ends.is_empty or is_next  -- a key that waits for its first job may have another one now
    placed[n] = {entry[1], lane.ends, is_next}
  end
  line_up(placed)
  for gate, keys in each_gate(touched) do
    if not gate.is_known then redis.call('HSETNX', gates, gate.name, '{}') end
    gate.is_known = true
    local new, changed = {}, {}
    for _, lane in ipairs(keys) do
      local list = lane.is_new and new or changed
      if lane.changes then list[#list + 1] = {key = lane.key} end
    end
    if not gate.is_damaged then read_tats(gate, new) end
    place(gate, new, true)
    place(gate, changed)
  end
end

-- Look again at those of these keys that have jobs and are not ready.
local function look_again_at(gate, keys)
  local found, names, others = {}, {}, {}
  read_numbers(gate, keys)
  for _, entry in ipairs(keys) do
    if entry.number > 0 then found[#found + 1], names[#names + 1] = entry, entry.key end
  end
  for n, tag in ipairs(#found > 0 and redis.call('ZMSCORE', gate.ready, unpack(names)) or {}) do
    if not tag then others[#others + 1] = found[n] end
  end
  place(gate, others)
end

-- Jobs no longer run: {id, gate, key}. Their places are free, so keys and gates may no longer be full.
local function leave(entries)
  local ended = {}
  for n, entry in ipairs(entries) do ended[n] = {gate = gate_of(entry[2]), key = entry[3], id = entry[1]} end
  for gate, jobs_of_gate in each_gate(ended) do
    local gone, keys, seen = {}, {}, {}
    for n, entry in ipairs(jobs_of_gate) do
      gone[n] = entry.key .. ' ' .. entry.id
      if not seen[entry.key] then seen[entry.key], keys[#keys + 1] = true, entry end
    end
    redis.pcall('ZREM', gate.running, unpack(gone))
    if not gate.is_damaged then
      if gate.key_concurrency then look_again_at(gate, keys) end
      if gate.concurrency and redis.call('EXISTS', gate.ready) == 1 then open_gate(gate) end
    end
  end
end

-- The end of a script: write the turns that changed. Returns the new earliest instant of `resting`, if it became earlier.
local function close_gates()
  for name, gate in pairs(gates_by_name) do
    if gate.has_entrants then write_turns(name, gate.present, gate.entrant, gate.tag) end
  end
  local words = {}
  for name, text in pairs(turns_to_write) do words[#words + 1], words[#words + 2] = name, text end
  if #words > 0 then redis.pcall('HSET', gate_turns, unpack(words)) end
  return first_rest and first_rest.earliest < first_rest.before and first_rest.earliest
end
