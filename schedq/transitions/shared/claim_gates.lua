-- Take jobs of gates. Needs what gates.lua needs, and `look`, `limit` and `ids` of claim.lua.
--
-- The next job comes from the source with the least tag: each gate that is open is one, and the plain jobs are one more. In a
-- gate it comes from the key with the least tag. A start that uses up a key or gate removes it from the order at once, so
-- that no later claim looks at it without success.
local MOST_SOURCES, MOST_STARTED, MOST_LOOKS = 64, 50, 100
local NONE = {}
local looks, has_changed, is_cut = 0, false, false  -- whether looks changed something; whether there was more to look at
local most = FOREVER  -- jobs that this claim takes; the next one continues, so that no client waits long for a script

local function add_sorted(list, entry)
  local n = #list
  while n > 0 and list[n].tag > entry.tag do n = n - 1 end
  table.insert(list, n + 1, entry)
end

-- Read pages of ready keys of several gates, in the order of their turns, each of `gate.page` keys.
local function read_keys(of)
  local entries, fields = {}, {}
  for _, gate in ipairs(of) do
    local flat = redis.pcall('ZRANGE', gate.ready, gate.read, gate.read + gate.page - 1, 'WITHSCORES')
    if flat.err then gate.is_damaged, gate.room = true, 0 end
    gate.read, gate.is_end, gate.fresh, gate.at = gate.read + gate.page, #flat < 2 * gate.page, {}, 1
    for n = 1, #flat, 2 do
      local entry = {key = flat[n], tag = tonumber(flat[n + 1]), ids = NONE, next = 1, read = 0, starts = 0, running = 0, number = 0}
      gate.fresh[#gate.fresh + 1], entries[#entries + 1], fields[#fields + 1] = entry, entry, 'gate:' .. member(gate, entry.key)
    end
    read_tats(gate, gate.fresh)
  end
  for n, number in ipairs(#fields > 0 and redis.call('HMGET', lanes, unpack(fields)) or {}) do
    entries[n].number = whole(number)
    entries[n].is_end = entries[n].number == 0
  end
end

local function next_key(gate)
  if gate.at > #gate.fresh and not gate.is_end then
    gate.page = gate.wanted + 2 + gate.read
    read_keys({gate})
  end
  local fresh, again = gate.fresh[gate.at], gate.again[1]
  if again and not (fresh and fresh.tag <= again.tag) then return table.remove(gate.again, 1) end
  gate.at = gate.at + 1
  return fresh
end

-- The next id in the key's lane, of which it reads `count` at a time; nil if there is none.
local function next_id(entry, count)
  if entry.next > #entry.ids and not entry.is_end then
    local low, high = scores_of(entry.number)
    entry.ids, entry.next = redis.call('ZRANGE', held, low, high, 'BYSCORE', 'LIMIT', entry.read, count), 1
    entry.read, entry.is_end = entry.read + #entry.ids, #entry.ids < count
  end
  return entry.ids[entry.next]
end

-- How many ids of a lane to read: what is left to take, shared among this key and those that come after it.
local function lane_page(gate)
  return math.ceil(gate.wanted / (#gate.fresh - gate.at + 2 + #gate.again)) + 1
end

-- Start the key's next job. Returns whether it did; if not, the key's condition has changed, or it is of no use to this caller.
local function start_next(gate, entry)
  if not entry.room then
    if gate.key_concurrency and gate.counts[gate.running] > 0 then entry.running = runs_of(gate, entry.key) end
    entry.room = gate.key_concurrency and gate.key_concurrency - entry.running or FOREVER
    if gate.key_rates[1] then entry.room = math.min(entry.room, starts_allowed(gate.key_rates, entry.tats)) end
    entry.label = member(gate, entry.key)
    gate.touched[#gate.touched + 1] = entry
  end
  while entry.room > 0 and looks < MOST_LOOKS + limit do
    local before, id = #ids, entry.ids[entry.next] or next_id(entry, lane_page(gate))
    if not id then return false end
    local result = look(id, true, gate, entry)
    looks = looks + 1
    if result ~= true then
      entry.stopped = result
      has_changed = has_changed or result == 'paused' or result == 'suspect' or result == 'early'
      return false
    end
    entry.next, has_changed = entry.next + 1, true
    if #ids > before then return true end
  end
  return false
end

-- Take up to `quota` jobs of a gate; returns how many.
local function serve_gate(gate, quota)
  local taken = 0
  while taken < quota and gate.room > 0 and looks < MOST_LOOKS + limit do
    gate.wanted = quota - taken
    local entry = next_key(gate)
    if not entry then break end
    if start_next(gate, entry) then
      taken, gate.room, entry.room, entry.starts = taken + 1, gate.room - 1, entry.room - 1, entry.starts + 1
      entry.running = entry.running + 1
      gate.present, entry.tag = math.max(gate.present, entry.tag), entry.tag + STEP
      gate.members[#gate.members + 1], gate.members[#gate.members + 2] = '0', entry.key .. ' ' .. ids[#ids]
      if entry.room > 0 and (entry.ids[entry.next] or next_id(entry, 2)) then add_sorted(gate.again, entry) end
    else
      looks = looks + 1
      if entry.stopped == 'full' then
        is_cut = true
        break
      end
    end
  end
  -- Looks at jobs of tasks that the caller does not take change nothing, and it would look at them again and again.
  if looks >= MOST_LOOKS + limit and has_changed then is_cut = true end
  return taken
end

-- The gates that may start a job, as sources; each is read when it gets its first turn.
local served = {}
local function open_sources()
  local sources, flat = {}, redis.call('ZRANGE', open_gates, 0, MOST_SOURCES - 1, 'WITHSCORES')
  for n = 1, #flat, 2 do sources[#sources + 1] = {name = flat[n], tag = tonumber(flat[n + 1])} end
  -- Those that get a turn first are read together.
  local names = {}
  for n = 1, math.min(#sources, limit) do names[n] = sources[n].name end
  if #names > 1 then
    local definitions, turns = redis.call('HMGET', gates, unpack(names)), redis.pcall('HMGET', gate_turns, unpack(names))
    for n = 1, #names do sources[n].definition, sources[n].turns = definitions[n] or '', turns[n] or '' end
  end
  return sources
end

local function read_source(source)
  local gate = gate_of(source.name, source.definition)
  read_turns(gate, source.turns)
  source.gate, source.step, gate.tag = gate, math.floor(STEP / gate.weight), source.tag
  gate.room = gate.concurrency and gate.concurrency - gate.counts[gate.running] or FOREVER
  gate.room = gate.is_damaged and 0 or gate.rates[1] and math.min(gate.room, starts_allowed(gate.rates, tats_of_gate(gate))) or gate.room
  gate.read, gate.is_end, gate.fresh, gate.at, gate.again = 0, false, {}, 1, {}
  gate.touched, gate.members, gate.starts, gate.has_ready = {}, {}, 0, false
  served[#served + 1] = gate
end

-- Give each source the number of starts that its turns give it.
local function share_out(sources, count)
  for n = 1, #sources do sources[n].quota, sources[n].ahead = 0, sources[n].tag end
  local left = count
  while left > 0 do
    local best, given = sources[1], #sources == 1 and left or 1
    for n = 2, #sources do
      if sources[n].ahead < best.ahead then best = sources[n] end
    end
    if not best.step then read_source(best) end
    best.quota, best.ahead, left = best.quota + given, best.ahead + given * best.step, left - given
  end
end

-- Fill the claim from all sources; `serve_plain(quota)` takes plain jobs, if there are any, and returns how many. Returns the
-- tags of the queue.
local function serve_all(serve_plain)
  local present, plain_tag = turns_of('')
  local plain, sources = {tag = math.max(present, plain_tag), step = STEP}, open_sources()
  if #sources > 0 then
    most = MOST_STARTED
    limit = math.min(limit, most)
  end
  if serve_plain then sources[#sources + 1] = plain end
  while #sources > 0 and #ids < limit do
    share_out(sources, limit - #ids)
    local left, to_read = {}, {}
    for _, source in ipairs(sources) do
      local gate = source.gate
      if source.quota > 0 and gate and gate.read == 0 and gate.room > 0 then
        gate.page, to_read[#to_read + 1] = source.quota + 2, gate
      end
    end
    read_keys(to_read)
    for _, source in ipairs(sources) do
      local gate, taken = source.gate, 0
      if source.quota > 0 then taken = gate and serve_gate(gate, source.quota) or not gate and serve_plain(source.quota) or 0 end
      if taken > 0 then
        present, source.tag = math.max(present, source.tag + (taken - 1) * source.step), source.tag + taken * source.step
        if gate then gate.starts, gate.tag = gate.starts + taken, source.tag end
      end
      if taken >= source.quota then left[#left + 1] = source end
    end
    if #left == #sources then break end
    sources = left
  end
  return present, plain.tag
end

-- Write what was taken, before the jobs are written to `processing`.
local function note_running()
  for _, gate in ipairs(served) do
    if #gate.members > 0 then
      local running = gate.counts[gate.running] + redis.call('ZADD', gate.running, unpack(gate.members))
      gate.counts[gate.running] = running
    end
    if gate.starts > 0 and (gate.rates[1] or gate.key_rates[1]) then
      local words = {}
      charge(gate.rates, tats_of_gate(gate), '', gate.starts, words)
      for _, entry in ipairs(gate.touched) do
        if entry.starts > 0 then charge(gate.key_rates, entry.tats, ' ' .. entry.key, entry.starts, words) end
      end
      redis.call('ZADD', gate.tats, unpack(words))
    end
  end
end

-- Put the keys and gates that were looked at into their conditions, after the jobs have left their lanes.
local gone_lanes = {}
local function settle_gate(gate)
  local ready, gone, tags, waiting, rests = {}, {}, {}, {}, {}
  for _, entry in ipairs(gate.touched) do
    local instant = entry.stopped == 'paused' and FOREVER or entry.stopped == 'suspect' and now + 1000 or entry.early
    -- The lanes were damaged: the promoter looks at all of them.
    if entry.number == 0 then redis.pcall('HSETNX', gate_turns, ' look', '1') end
    if entry.next > #entry.ids then entry.read = 0 end  -- the jobs that were read have left the lane
    entry.head = entry.ids[entry.next] or next_id(entry, 2)
    if entry.head and entry.room > 0 and not instant then
      gate.has_ready = true
      if entry.starts > 0 then ready[#ready + 1], ready[#ready + 2] = digits(entry.tag), entry.key end
    else
      gone[#gone + 1] = entry.key
      tags[#tags + 1], tags[#tags + 2] = digits(entry.tag), entry.key
      if entry.head and instant then
        rests[#rests + 1], rests[#rests + 2] = instant, member(gate, entry.key)
      elseif entry.head then
        waiting[#waiting + 1] = entry
      else
        gone_lanes[#gone_lanes + 1] = 'gate:' .. member(gate, entry.key)
      end
    end
  end
  if #ready > 0 then redis.call('ZADD', gate.ready, unpack(ready)) end
  if #tags > 0 then
    redis.pcall('ZADD', gate.tags, unpack(tags))
    redis.call('ZREM', gate.ready, unpack(gone))
  end
  if #rests > 0 then rest(rests) end
  place(gate, waiting, true)
end

local function has_ready(gate)
  if gate.has_ready or gate.at <= #gate.fresh then return true end
  return not gate.is_end and redis.call('EXISTS', gate.ready) == 1
end

local function settle_gates(present, plain_tag)
  local opens, closes = {}, {}
  for _, gate in ipairs(served) do
    if gate.starts > 0 then write_turns(gate.name, gate.present, gate.entrant, gate.tag) end
    if #gate.touched > 0 then settle_gate(gate) end
    gate.is_open = has_ready(gate) and open_gate(gate, gate.tag, opens)
    if not gate.is_open then closes[#closes + 1] = gate.name end
    if now % 8 == 0 then
      forget_before(gate.tags, '(' .. digits(gate.present))
      if gate.rates[1] or gate.key_rates[1] then forget_before(gate.tats, stamp) end
    end
  end
  if #gone_lanes > 0 then redis.call('HDEL', lanes, unpack(gone_lanes)) end
  if #opens > 0 then redis.call('ZADD', open_gates, unpack(opens)) end
  if #closes > 0 then redis.call('ZREM', open_gates, unpack(closes)) end
  write_turns('', present, plain_tag, 0)
end
