-- Needs gates, job and broken.
local MOST_REUNITED = 500

-- Move jobs of a lane that `lanes` had lost to the front of the lane that their key has now, the newest first, so that the
-- next page comes before them. Returns whether there may be more.
local function reunite(gate, key, number)
  local page, entries = in_lane(number, MOST_REUNITED, true), {}
  for n = #page - 1, 1, -2 do entries[#entries + 1] = {page[n], gate.name, key, true} end
  enter(entries)
  return #entries == MOST_REUNITED
end

-- Read at most `count` lanes from number `from` on: of each its number and its first job, whose gate and key are the lane's. A job without data is noted as broken,
-- because no claim would reach it if its key is nowhere. Returns also the next number, or nil at the end.
local function read_lanes(from, count)
  local number, found = math.max(from, LANE_NUMBERS + 1), {}
  for _ = 1, count do
    local low = scores_of(number)
    local id, score = unpack(redis.call('ZRANGE', held, low, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
    number = id and math.floor(tonumber(score) / LANE) or ALL_LANES + 1
    if number > ALL_LANES then return found end
    local job, reason = read_job(id, 'status', 'payload', 'gate', 'key')
    if job and job[3] then
      found[#found + 1] = {number = number, gate = gate_of(job[3]), key = job[4] or '', head = id}
      number = number + 1
    else
      if job then redis.call('RPUSH', pending, id) else to_broken(id, reason) end
      redis.call('ZREM', held, id)
    end
  end
  return found, number
end

-- Place the keys of at most `count` lanes from number `from` on. Returns the next number, or nil at the end. A lane that
-- `lanes` has lost is noted there again.
local function place_lanes(from, count)
  local found, next_number = read_lanes(from, count)
  local fields, by_field, to_place = {}, {}, {}
  for n, entry in ipairs(found) do fields[n] = 'gate:' .. member(entry.gate, entry.key) end
  for n, text in ipairs(#fields > 0 and redis.call('HMGET', lanes, unpack(fields)) or {}) do
    local entry, number, placed = found[n], whole(text), by_field[fields[n]]
    if placed then number = placed.number end
    if number <= LANE_NUMBERS or number > ALL_LANES then
      number = entry.number
      redis.call('HSET', lanes, fields[n], number)
    end
    if number == entry.number then
      to_place[#to_place + 1], by_field[fields[n]] = entry, entry
    else
      local has_more = reunite(entry.gate, entry.key, entry.number)
      if placed then placed.head = nil end
      if has_more then
        next_number = entry.number
        break
      end
    end
  end
  for gate, entries in each_gate(to_place) do place(gate, entries) end
  return next_number
end
