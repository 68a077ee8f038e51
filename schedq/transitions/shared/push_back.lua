local returned = {}  -- jobs that go back to `pending`: {id, started_at_ms, number in its claim}

local function give_back(id, started, token)
  returned[#returned + 1] = {id, started, tonumber(string.match(token or '', '%.(%d+)$') or '0')}
end

-- Put them at the front, newest claim first, so that the oldest is next.
local function push_returned()
  if #returned == 0 then return end
  table.sort(returned, function(a, b)
    if a[2] ~= b[2] then return a[2] > b[2] end
    if a[3] ~= b[3] then return a[3] > b[3] end
    return a[1] > b[1]
  end)
  local ids = {}
  for i, entry in ipairs(returned) do ids[i] = entry[1] end
  redis.call('RPUSH', pending, unpack(ids))
  set_wake()
end
