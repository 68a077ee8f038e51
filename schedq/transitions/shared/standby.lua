-- Who stands by for the promoter's lease: the first looks when that lease may have ended, the second sees to it that
-- there is a first, and all others, the reserves, take turns, however many they are. Instants are in ms.
local FIRST_MS, SECOND_MS, TURN_MS = 1250, 2600, 10000
local OVERDUE_MS = 450  -- a holder renews its lease with 500 left
local SLACK_MS, KEPT_MS, DAY_MS = 1000, 60000, 86400000
local FIELDS = {'first', 'first_until_ms', 'second', 'second_until_ms', 'turn_ms', 'turned_ms'}

-- The ids in the two places, false where nobody is, and when the last reserve will look. An instant further off than
-- any that is given is from before the clock went back, and so are turns that were given later than now.
local function read_standbys()
  local found = redis.pcall('HMGET', standbys, unpack(FIELDS))
  if found.err then return false, false, 0, false end
  local function taken(n)
    local left = (tonumber(found[n + 1] or '') or 0) - now
    return left > 0 and left <= SECOND_MS + SLACK_MS and found[n]
  end
  local turn, turned = tonumber(found[5] or '') or 0, tonumber(found[6] or '') or math.huge
  return taken(1), taken(3), turned <= now and turn <= now + DAY_MS and turn or 0, true
end
