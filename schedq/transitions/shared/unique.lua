-- Needs clock, `jobs` and `unique_keys`. What a rule says; a damaged one counts as the default.
local function rule_of(text)
  local lasts, per, conflict, wait, most_wait = string.match(text or '', '^(%a+) (%d+) (%a+) ?(%d*) ?(%d*)$')
  return {lasts = lasts == 'start' and 'start' or 'done', per = tonumber(per or 0), conflict = conflict or 'keep',
    wait = tonumber(wait) or 0, most_wait = tonumber(most_wait)}
end

local FACTS = {'unique', 'status', 'started_at_ms', 'tombstone', 'enqueued_at_ms', 'replaced_by'}

-- The id of the job that holds a key, and its fields unless only its window is left; nil if the key is free, and then the
-- job that held it last, as far as it is known. `note` is what the index says of the key, and `lasts` is done or start.
local function holder_in(note, key, lasts)
  local window, id = string.match(type(note) == 'string' and note or '', '^(%d+) ([%w_-]+)$')
  if not id then return nil end
  local values, job = redis.pcall('HMGET', jobs .. id, unpack(FACTS)), {id = id}
  for n, name in ipairs(FACTS) do job[name] = values[n] or nil end
  local is_same = job.unique == key and not job.tombstone
  if is_same then
    local status = job.status or 'pending'
    local waits = status == 'pending' or status == 'delayed'
    if waits and (lasts == 'done' or not job.started_at_ms) then return id, job end
    if status == 'processing' and lasts == 'done' then return id, job end
  end
  if now < tonumber(window) then return id end
  return nil, nil, is_same and job or nil
end

local function holder_of(key, lasts) return holder_in(redis.pcall('HGET', unique_keys, key), key, lasts) end

-- The keys that no job holds any more, of `count` entries of the index: a set.
local function stale_keys(count)
  local found, entries = {}, redis.call('HRANDFIELD', unique_keys, count, 'WITHVALUES')
  for n = 1, #entries, 2 do
    if not holder_in(entries[n + 1], entries[n], 'done') then found[entries[n]] = true end
  end
  return found
end
