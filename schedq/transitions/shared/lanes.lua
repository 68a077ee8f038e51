-- Pending jobs that not every claim may take are out of the way of others, in the zset `held`: those of paused tasks, and
-- those that belong to gates. Each task, and each key of a gate, has a lane there: a range of scores, in the order of its
-- jobs. `lanes` has the number of each task's lane, as `task:NAME`, and how many were `made`; for gates see gates.lua. The
-- lane that `first` names is being put back, so it comes before the rest of `pending`.
--@include in_lane

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
