local function make_lane(task)
  local made = redis.pcall('HINCRBY', lanes, 'made', 1)
  local number = type(made) == 'number' and (made - 1) % LANE_NUMBERS + 1 or 1
  redis.call('HSET', lanes, 'task:' .. task, number)
  return number
end

-- Put jobs into the lanes of their tasks: {id, task, whether it was the next in line}. They come last, unless they
-- were released or reclaimed, which makes them the next in line.
local function hold(entries)
  local words, ends = {}, {}
  for _, entry in ipairs(entries) do
    local id, task, is_next = unpack(entry)
    if not ends[task] then
      local number = lane_of(task) or make_lane(task)
      local middle = number * LANE + LANE / 2
      local first, last = tonumber(in_lane(number, 1)[2]), tonumber(in_lane(number, 1, true)[2])
      ends[task] = {first = first or middle + 1, last = last or middle, next = {}}
    end
    local lane = ends[task]
    if is_next then
      lane.next[#lane.next + 1] = id
    else
      lane.last = lane.last + 1
      words[#words + 1], words[#words + 2] = digits(lane.last), id
    end
  end
  for _, lane in pairs(ends) do
    for n = #lane.next, 1, -1 do
      lane.first = lane.first - 1
      words[#words + 1], words[#words + 2] = digits(lane.first), lane.next[n]
    end
  end
  if #words > 0 then redis.call('ZADD', held, unpack(words)) end
end
