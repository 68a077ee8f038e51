-- Pending jobs that not every claim may take are out of the way of others, in the zset `held`: those of paused tasks, and
-- those that belong to gates. Each task, and each key of a gate, has a lane there: a range of scores, in the order of its
-- jobs. `lanes` has the number of each task's lane, as `task:NAME`, and how many were `made`; for gates see gates.lua. The
-- lane that `first` names is being put back, so it comes before the rest of `pending`.
--@include in_lane

local function lane_of(task)
  local number = whole(redis.call('HGET', lanes, 'task:' .. task))
  return number > 0 and number <= LANE_NUMBERS and number or nil
end

-- The positions between which the jobs of a lane stand, so that jobs can be added at either end. `first` is read when needed.
local function ends_of(number, is_new)
  local last = not is_new and tonumber(in_lane(number, 1, true)[2])
  local middle = number * LANE + LANE / 2
  return {number = number, first = not last and middle + 1 or nil, last = last or middle, is_empty = not last, next = {}}
end

-- Add jobs to lanes: {id, ends of the lane, whether the job is the next in line}. Others come last, in this order.
local function line_up(entries)
  local words, fronts = {}, {}
  local function put(position, id) words[#words + 1], words[#words + 2] = digits(position), id end
  for _, entry in ipairs(entries) do
    local id, ends, is_next = unpack(entry, 1, 3)
    if is_next then
      if #ends.next == 0 then fronts[#fronts + 1] = ends end
      ends.next[#ends.next + 1] = id
    else
      ends.last = ends.last + 1
      put(ends.last, id)
    end
  end
  for _, ends in ipairs(fronts) do
    ends.first = ends.first or tonumber(in_lane(ends.number, 1)[2])
    for n = #ends.next, 1, -1 do
      ends.first = ends.first - 1
      put(ends.first, ends.next[n])
    end
  end
  if #words > 0 then redis.call('ZADD', held, unpack(words)) end
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
