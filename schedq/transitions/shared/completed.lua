local KEPT_IN_HIGH_MEMORY, HIGH_FOR_MS = 1000, 60000

-- Whether a reclaimer noted in the last minute that Redis is nearly full.
local function is_memory_high()
  return math.abs(now - whole(redis.pcall('HGET', stats, 'memory_high_at_ms'))) < HIGH_FOR_MS
end

-- Trim `completed` to `keep` records, or to fewer while memory is high. Records deleted before they expire are counted,
-- unless `keep` is 0, which asks for no records at all. Returns how many entries were removed.
local function trim_completed(keep, min_keep_ms, budget, length)
  local cap = keep
  if keep > KEPT_IN_HIGH_MEMORY and length > KEPT_IN_HIGH_MEMORY and is_memory_high() then cap = KEPT_IN_HIGH_MEMORY end
  local gone, deleted = trim(completed, 'completed', 'completed_at_ms', cap, min_keep_ms, budget, length)
  if keep > 0 then add_to_total('trimmed_total', deleted) end
  return gone
end
