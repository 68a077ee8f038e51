-- What decides when keys and gates may start jobs; writes nothing. Needs clock, checks, numbers and lanes; see gates.lua.
local FOREVER = math.huge
local gates_by_name, has_holds = {}, nil

local function limit_of(value)
  local number = type(value) == 'number' and math.floor(value) or 0
  return number > 0 and number < 2 ^ 31 and number or nil
end

-- A rate [n, ms, burst]: `burst` starts at once, then one every `spacing` ms, so that no window of `ms` has more than n.
local function rates_of(value)
  local found = {}
  for n, rate in ipairs(type(value) == 'table' and value or {}) do
    local most, per, burst = 0, 0, 0
    if type(rate) == 'table' then most, per, burst = limit_of(rate[1]), limit_of(rate[2]), limit_of(rate[3]) or 1 end
    if most and per and burst <= most then
      found[#found + 1] = {name = digits(n), spacing = per / (most - burst + 1), burst = burst, per = per}
    end
  end
  return found
end

-- What is known of a gate. A claim gives the `definition` that it has read, and finds out about `ready` when it reads it.
local function gate_of(name, definition)
  local found = gates_by_name[name]
  if found then return found end
  local text = definition or redis.pcall('HGET', gates, name)
  if type(text) ~= 'string' then text = '{}' end
  local is_read, limits = pcall(cjson.decode, text)
  if not is_read or type(limits) ~= 'table' then limits = {} end  -- a damaged definition limits nothing; doctor reports it
  found = {
    name = name, ready = gate_keys .. name .. ':ready', running = gate_keys .. name .. ':running',
    tags = gate_keys .. name .. ':tags', tats = gate_keys .. name .. ':rates',
    concurrency = limit_of(limits.concurrency), key_concurrency = limit_of(limits.key_concurrency),
    rates = rates_of(limits.rate), key_rates = rates_of(limits.key_rate),
    weight = math.min(limit_of(limits.weight) or 1, 1000), serial = limits.serial == true, counts = {},
  }
  if found.serial then found.key_concurrency = 1 end
  -- Another program may have put a key of another type there; the gate starts nothing until it is gone.
  local has_rates = #found.rates + #found.key_rates > 0
  local used = name ~= '' and {found.running, not definition and found.ready or nil} or {}
  if has_rates then used[#used + 1] = found.tats end
  for _, key in ipairs(used) do
    local count = redis.pcall('ZCARD', key)
    if type(count) ~= 'number' then found.is_damaged, count = true, 0 end
    found.counts[key] = count
  end
  gates_by_name[name] = found
  return found
end

local function member(gate, key) return gate.name .. ' ' .. key end

local function lane_of_key(gate, key)
  local number = whole(redis.call('HGET', lanes, 'gate:' .. member(gate, key)))
  return number > LANE_NUMBERS and number <= ALL_LANES and number or nil
end

-- Until when a gate or key is held: an instant, FOREVER if it is paused, or nil.
local function held_until(name)
  if has_holds == nil then has_holds = redis.call('EXISTS', gate_holds) == 1 end
  if not has_holds then return nil end
  local score = redis.pcall('ZSCORE', gate_holds, name)
  local at = type(score) == 'string' and tonumber(score) or 0
  return at > now and at or nil
end

local function runs_of(gate, key)
  local count = redis.pcall('ZLEXCOUNT', gate.running, '[' .. key .. ' ', '(' .. key .. '!')
  return type(count) == 'number' and count or 0
end
