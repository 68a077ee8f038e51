-- Standbys for the promoter lease: the first looks when the lease may have ended, the second makes sure that there is a
-- first, and all others, the reserves, take turns, however many there are. Instants are in ms.
local FIRST_MS, SECOND_MS, TURN_MS = 1250, 2600, 10000
local OVERDUE_MS = 450  -- a holder renews its lease when 500 ms are left
local SLACK_MS, KEPT_MS, DAY_MS = 1000, 60000, 86400000
local MOST_REST_MS = 60000  -- of a holder whose queue is not used
local FIELDS = {'first', 'first_until_ms', 'second', 'second_until_ms', 'turn_ms', 'turned_ms'}

-- The ids in the two places, false if vacant, and when the last reserve will look. An instant further ahead than any that
-- is ever set is from before the clock went back, and so are turns that were assigned in the future.
local function read_standbys()
  local found = redis.pcall('HMGET', standbys, unpack(FIELDS))
  if found.err then return false, false, 0, false end
  local function taken(n)
    local left = (tonumber(found[n + 1] or '') or 0) - now
    return left > 0 and left <= MOST_REST_MS + SECOND_MS + SLACK_MS and found[n]
  end
  local turn, turned = tonumber(found[5] or '') or 0, tonumber(found[6] or '') or math.huge
  return taken(1), taken(3), turned <= now and turn <= now + DAY_MS and turn or 0, true
end
