local MOST_LANES = 30

-- The lanes of tasks with jobs that `is_open` allows by their task, at most `MOST_LANES` from number `from` on and around.
local function open_lanes(from, is_open)
  local found, next_number, looked, is_around = {}, from, 0, false
  while looked < MOST_LANES do
    local low = scores_of(next_number)
    local id, score = unpack(redis.call('ZRANGE', held, low, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
    local number = id and math.max(0, math.min(ALL_LANES + 1, math.floor(tonumber(score) / LANE)))
    if next_number > ALL_LANES + 1 then id = nil end
    if id and number > LANE_NUMBERS and number <= ALL_LANES then
      next_number = ALL_LANES + 1
    elseif id and not (is_around and number >= from) then
      local payload = redis.pcall('HGET', jobs .. id, 'payload')
      local task = type(payload) == 'string' and (task_of(payload) or '')
      if not task or is_open(task) then found[#found + 1] = {number = number, task = task, first = id} end
      looked, next_number = looked + 1, number + 1
    elseif is_around or from == 0 then
      break
    else
      is_around, next_number = true, 0
    end
  end
  return found
end

local function is_resumed(task) return not is_task_paused(task) end

-- Lanes whose jobs some claim would take.
local function ready_lanes()
  if wrong_type('zset', held) or wrong_type('hash', lanes, paused_tasks) then return {} end
  return open_lanes(now % (whole(redis.call('HGET', lanes, 'made')) + 1), is_resumed)
end
