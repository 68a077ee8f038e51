-- Move at most `limit` due jobs from `delayed` to `pending`, earliest first; returns how many were due and how many were
-- moved. Also the first step of every claim. If there are gates, `more_fields` names the fields that tell which job belongs
-- to one, and `enter_gates` puts it into its lane, if it is given. Lanes cost more, so fewer of these jobs are moved in a
-- call; then as many are said to be due as were asked for.
local MOST_ENTERED = 50
local function promote_due(limit)
  if not is_due() then return 0, 0 end
  local ids = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, limit)
  if #ids == 0 then return 0, 0 end
  local moved, gated, looked_at = {}, {}, #ids
  -- Jobs are added first and removed last, so that an error in between can't lose one. A job that is then in both places
  -- is promoted again, and its second entry in `pending` is dropped.
  allow_when_full(delayed)
  for n, id in ipairs(ids) do
    if #gated == MOST_ENTERED then
      looked_at = n - 1
      break
    end
    local job, reason = read_job(id, 'status', 'payload', unpack(more_fields))
    if not job then
      to_broken(id, reason)
    elseif FINISHED[job[1]] or (job[1] == 'processing' and is_processing(id)) then
      add_to_total('strays_total', 1)
    elseif job[3] and enter_gates then
      gated[#gated + 1] = {id, job[3], job[4] or ''}
    else
      moved[#moved + 1] = id
    end
  end
  if #gated > 0 then enter_gates(gated) end
  if #moved > 0 then redis.call('LPUSH', pending, unpack(moved)) end
  for _, entry in ipairs(gated) do moved[#moved + 1] = entry[1] end
  if #moved > 0 then
    for _, id in ipairs(moved) do redis.call('HSET', jobs .. id, 'id', id, 'status', 'pending', 'promoted_at_ms', stamp) end
    add_to_total('promoted_total', #moved)
  end
  redis.call('ZREM', delayed, unpack(ids, 1, looked_at))
  first_due = nil
  return looked_at < #ids and limit or #ids, #moved
end
