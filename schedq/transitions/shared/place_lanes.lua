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

-- Place the keys of at most `count` lanes from number `from` on. Returns the next number, or nil at the end. A lane that
-- `lanes` has lost is noted there again. A job without data is noted as broken, because no claim would reach it if its key
-- is nowhere.
local function place_lanes(from, count)
  local number = math.max(from, LANE_NUMBERS + 1)
  for _ = 1, count do
    local low = scores_of(number)
    local id, score = unpack(redis.call('ZRANGE', held, low, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
    number = id and math.floor(tonumber(score) / LANE) or ALL_LANES + 1
    if number > ALL_LANES then return nil end
    local job, reason = read_job(id, 'status', 'payload', 'gate', 'key')
    if job and job[3] then
      local gate, key = gate_of(job[3]), job[4] or ''
      local known, has_more = lane_of_key(gate, key), false
      if not known then redis.call('HSET', lanes, 'gate:' .. member(gate, key), number) end
      if known and known ~= number then has_more = reunite(gate, key, number) else place(gate, key) end
      if not has_more then number = number + 1 end
    else
      if job then redis.call('RPUSH', pending, id) else to_broken(id, reason) end
      redis.call('ZREM', held, id)
    end
  end
  return number
end
