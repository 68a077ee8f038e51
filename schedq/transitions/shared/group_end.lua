-- Needs numbers. Every script that can end a job includes this, and calls `tell_group` before it writes that the job has
-- ended; see model/groups.py.
--
-- A bit in `counted` says that a child has ended, one in `succeeded` that it completed; so an end counts once, whoever tells
-- it how often. The mark, a score of 0 in `groups`, is set before the first bit: it says that the counters may be wrong, and
-- that something may be left to do. Only a script that found no mark may remove its own; `advance.lua` removes any, after it has
-- counted all bits. Nothing here may stop the end of a job, so a damaged group is left alone.
local MOST_GROUP_BYTES, LONGEST_NOTE, BUCKET = 67108864, 400, 100
local told = {}  -- by name: a group that has not ended, or false

-- A group that has not ended, marked; else false.
local function group_named(name)
  local key = group_keys .. name
  local found = redis.pcall('HMGET', key, 'status', 'generation', 'total', 'results', 'chained', 'head', 'tail', 'keyed', 'bytes')
  if found.err or (found[1] ~= 'running' and found[1] ~= 'cancelling') then return false end
  local score = redis.pcall('ZSCORE', groups, name)
  if type(score) == 'table' then return false end
  if score ~= '0' then redis.call('ZADD', groups, 0, name) end
  return {name = name, key = key, status = found[1], generation = found[2], total = whole(found[3]), keeps = found[4] == '1',
    chained = found[5] == '1', head = found[6] or '', tail = found[7] or '', keyed = found[8] == '1', bytes = whole(found[9]),
    was_marked = score == '0', look_at = score, ended = 0, succeeded = 0, more_bytes = 0, items = key .. ':items',
    counted_key = key .. ':counted', succeeded_key = key .. ':succeeded', failed_key = key .. ':failed',
    results_key = key .. ':results:'}
end

local function shortened(text)
  if #text <= LONGEST_NOTE then return text end
  return (string.gsub(string.sub(text, 1, LONGEST_NOTE), '[\192-\255]?[\128-\191]*$', '')) .. '…'
end

-- Keep what a retry needs: the number, the item as it was in `items`, and the error.
local function note_failure(group, id, number, note)
  local stored, item = redis.pcall('HMGET', jobs .. id, 'payload', 'key'), ''
  local payload = stored.err and '' or stored[1] or ''
  local first, last = #group.head + 1, #payload - #group.tail
  if not group.chained and string.sub(payload, 1, first - 1) == group.head and last >= first
    and string.sub(payload, last + 1) == group.tail then
    item = (group.keyed and (stored[2] or '') .. ' ' or '') .. string.sub(payload, first, last)
  end
  if group.bytes + group.more_bytes + #item > MOST_GROUP_BYTES then item = '' end
  group.more_bytes = group.more_bytes + #item
  redis.pcall('LPUSH', group.failed_key, number .. ' ' .. #item .. ' ' .. item .. shortened(note))
end

local function keep_result(group, number, text)
  if group.chained then redis.pcall('HSET', group.key, 'last', text) end
  if not group.keeps then return end
  if group.bytes + group.more_bytes + #text > MOST_GROUP_BYTES then
    redis.pcall('HSET', group.key, 'error', 'its results exceed 64 MiB; with results=False they are not kept')
    return
  end
  group.more_bytes = group.more_bytes + #text
  local bucket = group.results_key .. digits(floor(number / BUCKET))
  redis.pcall('HSET', bucket, number, text)
end

-- An error may have ended a script that had begun to tell of a success.
local function drop_result(group, number)
  local bucket = group.results_key .. digits(floor(number / BUCKET))
  if group.keeps then redis.pcall('HDEL', bucket, number) end
end

-- Tell the group of a job that the job has ended. `field` is the job's field `group`: the group's name, the child's number and
-- the generation in which it was made. `text` is its result, or what went wrong; `problem` says why a result could not be
-- stored as it was.
local function tell_group(field, id, has_completed, text, problem)
  local name, number, generation = string.match(field, '^([%w_-]+) (%d+) (%w+)$')
  if not name or id ~= name .. '-' .. number .. '-' .. generation then return end
  if told[name] == nil then told[name] = group_named(name) end
  local group = told[name]
  if not group or group.generation ~= generation or whole(number) >= group.total then return end
  if redis.pcall('GETBIT', group.counted_key, number) ~= 0 then return end
  if has_completed and group.chained and (problem or '') ~= '' then has_completed, text = false, 'result: ' .. problem end
  if has_completed then
    keep_result(group, number, text)
  else
    drop_result(group, number)
    note_failure(group, id, number, text)
  end
  redis.pcall('SETBIT', group.succeeded_key, number, has_completed and 1 or 0)
  redis.pcall('SETBIT', group.counted_key, number, 1)
  group.ended = group.ended + 1
  if has_completed then group.succeeded = group.succeeded + 1 end
end
