-- Needs clock, numbers, expiry, `jobs` and `unique_keys`. What a rule says; a damaged one counts as the default.
local function rule_of(text)
  local lasts, per, conflict, wait, most_wait = string.match(text or '', '^(%a+) (%d+) (%a+) ?(%d*) ?(%d*)$')
  return {lasts = lasts == 'start' and 'start' or 'done', per = tonumber(per or 0), conflict = conflict or 'keep',
    wait = tonumber(wait) or 0, most_wait = tonumber(most_wait)}
end

local FACTS = {'unique', 'status', 'started_at_ms', 'tombstone', 'enqueued_at_ms', 'replaced_by', 'expires'}

-- The id of the job that holds a key, and its fields unless only its window is left; nil if the key is free, and then the
-- job that held it last, as far as it is known. `note` is what the index says of the key, and `lasts` is done or start. A
-- window that ends later than `per` from now is from before the clock went back, or a longer rule, and counts no more. A
-- job that has expired holds no key: its next claim cancels it, and the new call would be lost with it.
local function holder_in(note, key, lasts, per)
  local window, id = string.match(type(note) == 'string' and note or '', '^(%d+) ([%w_-]+)$')
  if not id then return nil end
  local values, job = redis.pcall('HMGET', jobs .. id, unpack(FACTS)), {id = id}
  for n, name in ipairs(FACTS) do job[name] = values[n] or nil end
  local is_same = job.unique == key and not job.tombstone
  if is_same then
    local status = job.status or 'pending'
    local waits = status == 'pending' or status == 'delayed'
    local ends = job.expires and expires_at(job.expires, job.enqueued_at_ms)
    if ends and ends <= now then waits = false end
    if waits and (lasts == 'done' or not job.started_at_ms) then return id, job end
    if status == 'processing' and lasts == 'done' then return id, job end
  end
  local left = tonumber(window) - now
  if left > 0 and (not per or left <= per) then return id end
  return nil, nil, is_same and job or nil
end

local function holder_of(key, rule) return holder_in(redis.pcall('HGET', unique_keys, key), key, rule.lasts, rule.per) end

-- The keys that no job holds any more, of `count` entries of the index: a set.
local function stale_keys(count)
  local found, entries = {}, redis.call('HRANDFIELD', unique_keys, count, 'WITHVALUES')
  for n = 1, #entries, 2 do
    if not holder_in(entries[n + 1], entries[n], 'done') then found[entries[n]] = true end
  end
  return found
end
