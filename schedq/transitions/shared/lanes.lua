-- Pending jobs that not every claim may take are out of the way of others, in the zset `held`: those of paused tasks, and
-- those that belong to gates. Each task, and each key of a gate, has a lane there: a range of scores, in the order of its
-- jobs. `lanes` has the number of each task's lane, as `task:NAME`, and how many were `made`; for gates see gates.lua. The
-- lane that `first` names is being put back, so it comes before the rest of `pending`.
local LANE, LANE_NUMBERS, ALL_LANES = 2147483648, 10000, 4000000  -- scores in a lane; lanes of tasks, then those of gates
-- The first and the last score of a lane. Damaged scores are in lanes before the first one and after the last.
local function scores_of(number)
  return number <= 0 and '-inf' or digits(number * LANE), number > ALL_LANES and '+inf' or digits((number + 1) * LANE - 1)
end

-- Jobs of a lane and their scores, from its first job on, or from its last one backwards.
local function in_lane(number, count, from_end)
  local low, high = scores_of(number)
  if from_end then return redis.call('ZRANGE', held, high, low, 'BYSCORE', 'REV', 'LIMIT', 0, count, 'WITHSCORES') end
  return redis.call('ZRANGE', held, low, high, 'BYSCORE', 'LIMIT', 0, count, 'WITHSCORES')
end

local function lane_of(task)
  local number = whole(redis.call('HGET', lanes, 'task:' .. task))
  return number > 0 and number <= LANE_NUMBERS and number or nil
end

-- Forget the numbers of lanes without jobs.
local function tidy_lanes(looked_at)
  if redis.call('EXISTS', held) == 0 then
    redis.call('DEL', lanes)
    return
  end
  for _, lane in ipairs(looked_at) do
    if lane.task and #in_lane(lane.number, 1) == 0 then redis.call('HDEL', lanes, 'task:' .. lane.task) end
  end
end
