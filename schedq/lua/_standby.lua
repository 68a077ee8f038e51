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

-- Give up a place, if `me` has one. Only removals.
local function leave_place(me)
  local found = redis.pcall('HMGET', standbys, 'first', 'second')
  if found[1] == me then redis.call('HDEL', standbys, 'first', 'first_until_ms') end
  if found[2] == me then redis.call('HDEL', standbys, 'second', 'second_until_ms') end
end

-- Take the best place that is vacant; returns which (2, 3, or 4 for a reserve) and in how many ms to look again.
local function stand_by(me, left)
  local first, second, turn, is_hash = read_standbys()
  open_memory(leases)
  if not is_hash then redis.call('DEL', standbys) end  -- ours, damaged, and nothing in it outlives some seconds
  local place, name, wait
  if not first or first == me then
    place, name, wait = 2, 'first', left < OVERDUE_MS and left + 10 or math.max(left + 10, FIRST_MS)
    if second == me then redis.call('HDEL', standbys, 'second', 'second_until_ms') end
  elseif not second or second == me then
    place, name, wait = 3, 'second', left < OVERDUE_MS and left + 10 or SECOND_MS
  else
    turn = math.min(math.max(turn, now) + TURN_MS, now + DAY_MS)
    redis.call('HSET', standbys, 'turn_ms', string.format('%.0f', turn), 'turned_ms', string.format('%.0f', now))
    place, wait = 4, turn - now
  end
  if name then
    redis.call('HSET', standbys, name, me, name .. '_until_ms', string.format('%.0f', now + wait + SLACK_MS))
  end
  redis.call('PEXPIRE', standbys, KEPT_MS)
  return place, wait
end

-- The best part that is to be taken by one that has none: 1 the lease itself, 2 or 3 a place, 0 none. The place of the
-- first is the second's, if there is one.
local function vacancy()
  if redis.call('EXISTS', promoter) == 0 then return 1 end
  local first, second = read_standbys()
  if first then return second and 0 or 3 end
  return second and 0 or 2
end
