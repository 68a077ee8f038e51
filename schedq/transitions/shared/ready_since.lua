-- Fields that show when a job became ready to run; they must come first in a list of fields to read.
local READY = {'enqueued_at_ms', 'run_at_ms', 'reclaimed_at_ms', 'last_error_at_ms', 'cancelled_at_ms', 'claimed_at_ms',
  'released'}

-- When a job that started at `started` had become ready. Nil if that is not recorded: the job was requeued or released
-- before, or another program enqueued it.
local function ready_at(job, started)
  local ready = math.max(whole(job[1]), whole(job[2]), whole(job[3]))
  if ready == 0 or ready > started or job[7] then return nil end
  for n = 4, 5 do
    local ended = whole(job[n])
    if ended > ready and ended < started then return nil end
  end
  return ready
end

-- How long a job in `pending` has waited, counted from the last recorded instant.
local function waited(job)
  local since = 0
  for n = 1, 6 do since = math.max(since, whole(job[n])) end
  return since > 0 and math.max(0, now - since) or 0
end
