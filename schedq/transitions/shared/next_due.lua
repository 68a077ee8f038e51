local first_due  -- the earliest due instant of `delayed`, once it has been read

-- The earliest due instant, or ''.
local function next_due()
  first_due = first_due or redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or ''
  return first_due
end

local function is_due() return (tonumber(next_due()) or math.huge) <= now end
