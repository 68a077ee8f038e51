-- Needs gates, job and broken. Place the keys of at most `count` lanes from number `from` on. Returns the next number, or
-- nil at the end. A job without data is noted as broken, because no claim would reach it if its key is nowhere.
local function place_lanes(from, count)
  local number = math.max(from, LANE_NUMBERS + 1)
  for _ = 1, count do
    local low = scores_of(number)
    local id, score = unpack(redis.call('ZRANGE', held, low, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
    number = id and math.floor(tonumber(score) / LANE) or ALL_LANES + 1
    if number > ALL_LANES then return nil end
    local job, reason = read_job(id, 'status', 'payload', 'gate', 'key')
    if job and job[3] then
      place(gate_of(job[3]), job[4] or '')
      number = number + 1
    else
      if job then redis.call('RPUSH', pending, id) else to_broken(id, reason) end
      redis.call('ZREM', held, id)
    end
  end
  return number
end
