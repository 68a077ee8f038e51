-- What keeps a gate or a key from its next start, for people; needs in_lane and gate_facts. Writes nothing.
local MOST_STARTED = 200

-- When all rates allow a start, or nil if they do now; like `rate_ends` in gates.lua, but without writes.
local function rates_allow_at(gate, rates, suffix)
  local at
  for _, rate in ipairs(rates) do
    local text = redis.pcall('ZSCORE', gate.tats, rate.name .. suffix)
    local tat = type(text) == 'string' and tonumber(text) or 0
    local from = math.min(tat, now + rate.burst * rate.spacing) - (rate.burst - 1) * rate.spacing
    if from - now > 1e-6 then at = math.max(at or 0, math.ceil(from)) end
  end
  return at
end

-- The condition, its end as text or '', and what sets that end: a hold, a retry in order, or a rate.
local function condition(held_to, is_full, order_at, rate_at)
  if held_to == FOREVER then return 'paused', '', '' end
  if is_full then return 'full', '', '' end
  local at, cause = held_to or 0, 'hold'
  if (order_at or 0) > at then at, cause = order_at, 'order' end
  if (rate_at or 0) > at then at, cause = rate_at, 'rate' end
  if at == 0 then return 'ready', '', '' end
  return 'resting', digits(at), cause
end

local function state_of_gate(gate, running)
  if gate.is_damaged then return 'damaged', '', '' end
  local is_full = gate.concurrency and running >= gate.concurrency
  return condition(gate.name ~= '' and held_until(gate.name) or nil, is_full, nil, rates_allow_at(gate, gate.rates, ''))
end

local function state_of_key(gate, key, number, running)
  if gate.is_damaged then return 'damaged', '', '' end
  local head = gate.serial and number and in_lane(number, 1)[1]
  local due = head and whole(redis.pcall('HGET', jobs .. head, 'retry_at_ms')) or 0
  local is_full = gate.key_concurrency and running >= gate.key_concurrency
  return condition(held_until(member(gate, key)), is_full, due > now and due or nil, rates_allow_at(gate, gate.key_rates, ' ' .. key))
end

-- Since when the earliest of these "KEY ID" runs, or ''.
local function earliest_start(members)
  local first
  for _, name in ipairs(members) do
    local at = whole(redis.pcall('HGET', jobs .. string.match(name, '(%S*)$'), 'started_at_ms'))
    if at > 0 and at < (first or FOREVER) then first = at end
  end
  return first and digits(first) or ''
end
