-- Put jobs back at the front of `pending`: {id, started_at_ms, token}. The newest claim comes first, so that the oldest is
-- next.
local function push_back(returned)
  if #returned == 0 then return end
  for _, entry in ipairs(returned) do entry[3] = tonumber(string.match(entry[3] or '', '%.(%d+)$') or '0') end  -- in its claim
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
