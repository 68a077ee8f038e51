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

-- How many lanes were made, with one more. If `lanes` was lost, the count continues behind the last lane that has jobs, and the
-- promoter looks at all lanes.
local function count_lane()
  local made = redis.pcall('HINCRBY', lanes, 'gates_made', 1)
  if type(made) ~= 'number' then return 1 end
  local last = made == 1 and tonumber(redis.call('ZRANGE', held, -1, -1, 'WITHSCORES')[2])
  if last and last >= (LANE_NUMBERS + 1) * LANE then
    made = math.min(math.floor(last / LANE), ALL_LANES) - LANE_NUMBERS + 1
    redis.call('HSET', lanes, 'gates_made', made)
    redis.pcall('HSETNX', gate_turns, ' look', '1')
  end
  return made
end

-- Numbers of lanes come round again after millions, when an old lane may still have jobs.
local function make_key_lane(gate, key)
  local number
  for _ = 1, 20 do
    local made = count_lane() - 1
    number = LANE_NUMBERS + 1 + made % (ALL_LANES - LANE_NUMBERS)
    if made < ALL_LANES - LANE_NUMBERS or #in_lane(number, 1) == 0 then break end
  end
  redis.call('HSET', lanes, 'gate:' .. member(gate, key), number)
  return number
end

-- The theoretical arrival time of a rate, as of GCRA. One that lies further ahead than starts can have put it is from before
-- the clock went back, and it would stay as far ahead if it were not written.
local function tat_of(gate, rate, suffix)
  local text = redis.pcall('ZSCORE', gate.tats, rate.name .. suffix)
  local tat, most = type(text) == 'string' and tonumber(text) or 0, now + rate.burst * rate.spacing
  if tat <= most then return tat end
  redis.pcall('ZADD', gate.tats, string.format('%.17g', most), rate.name .. suffix)
  return most
end

-- The instant from which on a start conforms to all rates, or nil if one does now. `suffix` is '' for
-- the gate and " KEY" for a key.
local function rate_ends(gate, rates, suffix)
  local at
  for _, rate in ipairs(rates) do
    local from = tat_of(gate, rate, suffix) - (rate.burst - 1) * rate.spacing
    if from - now > 1e-6 then
      local soonest = now + math.min(SOONEST, math.ceil(rate.burst / 2) * rate.spacing)
      at = math.max(at or 0, math.ceil(from), math.floor(soonest))
    end
  end
  return at
end

-- How many starts conform now to all rates.
local function starts_allowed(gate, rates, suffix)
  local count = FOREVER
  for _, rate in ipairs(rates) do
    local base = math.max(tat_of(gate, rate, suffix), now)
    count = math.min(count, math.max(0, math.floor((now - base) / rate.spacing + 1e-9) + rate.burst))
  end
  return count
end

local function charge(gate, rates, suffix, starts)
  local words = {}
  for _, rate in ipairs(rates) do
    local base = math.max(tat_of(gate, rate, suffix), now)
    words[#words + 1], words[#words + 2] = string.format('%.17g', base + starts * rate.spacing), rate.name .. suffix
  end
  if #words > 0 then redis.call('ZADD', gate.tats, unpack(words)) end
end

-- When the key may start its next job: nil for now, FOREVER if another script will look at it again, or an instant.
local function key_waits(gate, key, number)
  local at = held_until(member(gate, key))
  if at == FOREVER then return at end
  if gate.key_concurrency and runs_of(gate, key) >= gate.key_concurrency then return FOREVER end
  if gate.serial and number then  -- a retry keeps its place, and its key waits for it
    local head = in_lane(number, 1)[1]
    local due = head and whole(redis.pcall('HGET', jobs .. head, 'retry_at_ms')) or 0
    if due > now then at = math.max(at or 0, due) end
  end
  local allowed = rate_ends(gate, gate.key_rates, ' ' .. key)
  return allowed and math.max(at or 0, allowed) or at
end

local function rest(name, at)
  if not first_rest then
    first_rest = {before = tonumber(redis.call('ZRANGE', resting, 0, 0, 'WITHSCORES')[2] or FOREVER), earliest = FOREVER}
  end
  redis.call('ZADD', resting, digits(at), name)
  first_rest.earliest = math.min(first_rest.earliest, at)
end

-- A gate with ready keys: open it, or let it rest. `tag`: it was open, and this is the tag of its next turn, which is added
-- to `opens`.
local function open_gate(gate, tag, opens)
  local at = gate.is_damaged and FOREVER or held_until(gate.name)
  local running = gate.concurrency and (tag and gate.counts[gate.running] or redis.call('ZCARD', gate.running))
  if not at and running and running >= gate.concurrency then at = FOREVER end
  if at ~= FOREVER then
    local allowed = rate_ends(gate, gate.rates, '')
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
  if at ~= FOREVER then rest(gate.name, at) end
  redis.call('ZREM', open_gates, gate.name)
  return false
end

-- The key has no jobs in its lane.
local function forget_key(gate, key)
  redis.call('ZREM', gate.ready, key)
  redis.call('ZREM', resting, member(gate, key))
  redis.call('HDEL', lanes, 'gate:' .. member(gate, key))
end

-- The tag with which a key gets its next turn: its own if that lies ahead, else it comes behind the last entrant.
local function tag_of_turn(gate, key)
  read_turns(gate)
  local before = gate.has_tags and redis.call('ZSCORE', gate.tags, key)
  local tag = before and tonumber(before) or -1
  if tag >= gate.present then return tag end
  gate.entrant, gate.has_entrants = math.max(gate.present, gate.entrant + 1), true
  return gate.entrant
end

-- Put a key into the condition that follows from the facts. `is_new`: it had no jobs, so it is nowhere.
local function place(gate, key, is_new)
  if gate.is_damaged then return end
  local number = not is_new and lane_of_key(gate, key)
  if not is_new and (not number or #in_lane(number, 1) == 0) then return forget_key(gate, key) end
  local at = key_waits(gate, key, number)
  if not at then
    if is_new or not redis.call('ZSCORE', gate.ready, key) then
      redis.call('ZADD', gate.ready, 'NX', digits(tag_of_turn(gate, key)), key)
    end
    if not is_new then redis.call('ZREM', resting, member(gate, key)) end
    if not gate.is_open then open_gate(gate) end
    return
  end
  if is_new then
    if at ~= FOREVER then rest(member(gate, key), at) end
    return
  end
  local tag = redis.call('ZSCORE', gate.ready, key)
  if tag then
    redis.pcall('ZADD', gate.tags, tag, key)
    gate.has_tags = true
    redis.call('ZREM', gate.ready, key)
  end
  if at == FOREVER then redis.call('ZREM', resting, member(gate, key)) else rest(member(gate, key), at) end
end

-- Put jobs into the lanes of their keys: {id, gate, key, whether it is the next in line}.
local function enter(entries)
  local touched, by_name, placed = {}, {}, {}
  for n, entry in ipairs(entries) do
    local id, gate, key, is_next = entry[1], gate_of(entry[2]), entry[3], entry[4]
    local name = member(gate, key)
    local lane = by_name[name]
    if not lane then
      local number = lane_of_key(gate, key)
      lane = {gate = gate, key = key, is_new = not number, ends = ends_of(number or make_key_lane(gate, key), not number)}
      lane.changes = lane.ends.is_empty
      by_name[name], touched[#touched + 1] = lane, lane
    end
    lane.changes = lane.changes or is_next  -- a key that waits for its first job may have another one now
    placed[n] = {id, lane.ends, is_next}
  end
  line_up(placed)
  for _, lane in ipairs(touched) do
    local gate = lane.gate
    if not gate.is_known then redis.call('HSETNX', gates, gate.name, '{}') end
    gate.is_known = true
    if lane.changes then place(gate, lane.key, lane.is_new) end
  end
end

-- Jobs no longer run: {id, gate, key}. Their places are free, and their keys are looked at again.
local function leave(entries)
  local groups = {}
  for _, entry in ipairs(entries) do
    local gate = gate_of(entry[2])
    local group = groups[gate.name]
    if not group then
      group = {gate = gate, gone = {}, keys = {}, seen = {}}
      groups[gate.name] = group
      groups[#groups + 1] = group
    end
    group.gone[#group.gone + 1] = entry[3] .. ' ' .. entry[1]
    if not group.seen[entry[3]] then
      group.seen[entry[3]] = true
      group.keys[#group.keys + 1] = entry[3]
    end
  end
  for _, group in ipairs(groups) do
    local gate, fields = group.gate, {}
    redis.pcall('ZREM', gate.running, unpack(group.gone))
    for n, key in ipairs(group.keys) do fields[n] = 'gate:' .. member(gate, key) end
    local numbers = redis.call('HMGET', lanes, unpack(fields))
    for n, key in ipairs(group.keys) do
      if numbers[n] and not gate.is_damaged and not redis.call('ZSCORE', gate.ready, key) then place(gate, key) end
    end
    if not gate.is_damaged and redis.call('EXISTS', gate.ready) == 1 then open_gate(gate) end
  end
end

-- Look again at keys and gates whose instant has passed. Returns whether there are more.
local function rouse(most)
  local names = redis.call('ZRANGE', resting, '-inf', stamp, 'BYSCORE', 'LIMIT', 0, most)
  for _, name in ipairs(names) do
    local gate, key = string.match(name, '^(%S+) (.*)$')
    if gate then
      place(gate_of(gate), key)
    else
      gate = gate_of(name)
      redis.call('ZREM', resting, name)
      opened = name == '' or opened
      if name ~= '' and not gate.is_damaged and redis.call('EXISTS', gate.ready) == 1 then open_gate(gate) end
    end
  end
  if #names > 0 then redis.pcall('ZREMRANGEBYSCORE', gate_holds, '-inf', stamp) end
  return #names == most
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
