-- Looks again at what has rested; needs gates.lua.
local MOST_FORGOTTEN = 500

-- Remove what has passed from a zset, in pages, each of which is more than claims add until the next one.
local function forget_before(zset, score)
  local count = redis.pcall('ZCOUNT', zset, '-inf', score)
  if type(count) == 'number' and count > 0 then redis.call('ZREMRANGEBYRANK', zset, 0, math.min(count, MOST_FORGOTTEN) - 1) end
end

-- Look again at keys and gates whose instant has passed. Returns whether there are more.
local function rouse(most)
  local names, keys = redis.call('ZRANGE', resting, '-inf', stamp, 'BYSCORE', 'LIMIT', 0, most), {}
  for _, name in ipairs(names) do
    local gate_name, key = string.match(name, '^(%S+) (.*)$')
    local gate = gate_of(gate_name or name)
    if gate_name and not gate.is_damaged then
      keys[#keys + 1] = {gate = gate, key = key}
    elseif gate_name then
      rest({now + 1000, name})  -- until another program's key is gone
    else
      redis.call('ZREM', resting, name)
      opened = name == '' or opened
      if name ~= '' and not gate.is_damaged and redis.call('EXISTS', gate.ready) == 1 then open_gate(gate) end
    end
  end
  for gate, entries in each_gate(keys) do place(gate, entries) end
  if #names > 0 then forget_before(gate_holds, stamp) end
  return #names == most
end
