-- What is known of when a job could have been started; the names come first in a list of fields to read.
local READY = {'enqueued_at_ms', 'run_at_ms', 'reclaimed_at_ms', 'last_error_at_ms', 'cancelled_at_ms', 'claimed_at_ms',
  'released'}

-- Since when a job that was started at an instant had been ready for it. Nil where nobody wrote that down: it was
-- requeued or given back before, or is another program's.
local function ready_at(job, started)
  local ready = math.max(whole(job[1]), whole(job[2]), whole(job[3]))
  if ready == 0 or ready > started or job[7] then return nil end
  for n = 4, 5 do
    local ended = whole(job[n])
    if ended > ready and ended < started then return nil end
  end
  return ready
end

-- How long a job in `pending` has waited: since the last that is known of it.
local function waited(job)
  local since = 0
  for n = 1, 6 do since = math.max(since, whole(job[n])) end
  return since > 0 and math.max(0, now - since) or 0
end
