local function make_lane(task)
  local made = redis.pcall('HINCRBY', lanes, 'made', 1)
  local number = type(made) == 'number' and (made - 1) % LANE_NUMBERS + 1 or 1
  redis.call('HSET', lanes, 'task:' .. task, number)
  return number
end

-- Put jobs into the lanes of their tasks: {id, task, whether it was the next in line}. They come last, unless they
-- were released or reclaimed, which makes them the next in line.
local function hold(entries)
  local ends, placed = {}, {}
  for n, entry in ipairs(entries) do
    local task = entry[2]
    ends[task] = ends[task] or ends_of(lane_of(task) or make_lane(task))
    placed[n] = {entry[1], ends[task], entry[3]}
  end
  line_up(placed)
end
