-- Which scores of `held` are a lane, and what is in it; see lanes.lua. Needs numbers.
local LANE, LANE_NUMBERS, ALL_LANES = 2147483648, 10000, 4000000  -- scores in a lane; lanes of tasks, then those of gates

-- The first and the last score of a lane. Damaged scores are in lanes before the first one and after the last.
local function scores_of(number)
  return number <= 0 and '-inf' or format('%d', number * LANE), number > ALL_LANES and '+inf' or format('%d', (number + 1) * LANE - 1)
end

-- Jobs of a lane and their scores, from its first job on, or from its last one backwards.
local function in_lane(number, count, from_end)
  local low, high = scores_of(number)
  if from_end then return redis.call('ZRANGE', held, high, low, 'BYSCORE', 'REV', 'LIMIT', 0, count, 'WITHSCORES') end
  return redis.call('ZRANGE', held, low, high, 'BYSCORE', 'LIMIT', 0, count, 'WITHSCORES')
end
