local LONGEST_TTL = 253402300799999
local has_noted_ttl = false

-- How long the record of a finished job is kept, in ms as text; '' if it does not expire. Its own ttl comes first, then
-- its task's, as its worker sent it, then the queue's. Records with ttls of their own do not expire in the order of the
-- histories, so the reclaimer must search these for them.
local function kept_for(own, tasks, queues)
  if not own and tasks == '' then return queues end
  local function valid_ttl(text)
    local ms = tonumber(text or '')
    return ms and ms >= 0 and ms <= LONGEST_TTL and math.ceil(ms)
  end
  local ms = valid_ttl(own) or valid_ttl(tasks)
  if not ms then return queues end
  if not has_noted_ttl then redis.pcall('HSET', stats, 'own_ttls', 1) end
  has_noted_ttl = true
  return digits(math.max(ms, min_keep_ms))
end

-- PEXPIRE with 0 would delete the record before the script ends. A Redis user whose rules date from an earlier release may not
-- call it, and that must not stop a move.
local function expire_record(key, ms)
  if ms ~= '' then redis.pcall('PEXPIRE', key, ms == '0' and 1 or ms) end
end
