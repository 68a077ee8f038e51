-- Needs group_end, wake_run, totals and numbers. What follows from the ends of children: the next ones are made, or the group ends.
local MOST_MADE, MOST_LIVE, LOOK_AGAIN, YEAR = 150, 1000, 10000, 31536000000
local jobs_made = 0

-- Damaged options are left out.
local function fields_of(options)
  local is_read, fields = pcall(cjson.decode, options)
  return is_read and type(fields) == 'table' and #fields % 2 == 0 and fields or {}
end

-- A job that the group makes: first its place, then its record. `options` is a JSON array of fields and values.
local function make_call(id, payload, options, ...)
  redis.call('LPUSH', pending, id)
  local fields = fields_of(options)
  for _, value in ipairs({...}) do fields[#fields + 1] = value end
  redis.call('HSET', jobs .. id, 'id', id, 'payload', payload, 'status', 'pending', 'attempts', '0', 'enqueued_at_ms', stamp,
    unpack(fields))
  add_to_total('enqueued_total', 1)
  jobs_made = jobs_made + 1
end

-- A call is stored as its options, a line break, and its payload, in which `marker` stands for the result it is given.
local function filled_in(call, marker, result)
  local options, text = string.match(call or '', '^([^\n]*)\n(.*)$')
  if not options then return 'null', '[]' end  -- damaged: the job fails as one that calls nothing
  local parts, from = {}, 1
  local first, last = string.find(text, marker, from, true)
  while first do
    parts[#parts + 1], parts[#parts + 2] = string.sub(text, from, first - 1), result
    from = last + 1
    first, last = string.find(text, marker, from, true)
  end
  parts[#parts + 1] = string.sub(text, from)
  return table.concat(parts), options
end

local function child_id(group, number) return group.name .. '-' .. number .. '-' .. group.generation end

-- The children of the next `count` items, the first of which is the last in the list. An item is taken out last: until then
-- its child is made again, under the same id.
local function make_children(group, plan, first, count)
  local page, new, keys = redis.call('LRANGE', group.items, -count, -1), {}, {}
  for n = 1, #page do
    local number, text, child_key = digits(first + n - 1), page[#page - n + 1], nil
    if plan.numbered then number, text = string.match(text, '^(%d+) (.*)$') end
    if group.keyed then child_key, text = string.match(text, '^(%S*) (.*)$') end
    new[n] = {id = child_id(group, number), number = number, payload = group.head .. text .. group.tail, key = child_key}
    keys[n] = jobs .. new[n].id
  end
  local is_any_there, ids, made = redis.call('EXISTS', unpack(keys)) > 0, {}, {}
  for n, child in ipairs(new) do
    if not is_any_there or redis.call('EXISTS', keys[n]) == 0 then
      made[#made + 1], ids[#ids + 1] = child, child.id
      if plan.numbered then redis.call('SETBIT', group.counted_key, child.number, 0) end
    end
  end
  if #ids > 0 then redis.call('LPUSH', pending, unpack(ids)) end
  local fields = fields_of(plan.options)
  for _, child in ipairs(made) do
    local own = {'id', child.id, 'payload', child.payload, 'status', 'pending', 'attempts', '0', 'enqueued_at_ms', stamp, 'group',
      group.name .. ' ' .. child.number .. ' ' .. group.generation, unpack(fields)}
    if child.key then own[#own + 1], own[#own + 2] = 'key', child.key end
    redis.call('HSET', jobs .. child.id, unpack(own))
  end
  redis.call('LTRIM', group.items, 0, -count - 1)
  add_to_total('enqueued_total', #ids)
  jobs_made = jobs_made + count
  return #ids
end

local function read_plan(group)
  local found = redis.call('HMGET', group.key, 'closed', 'concurrency', 'numbered', 'options', 'tolerate', 'last', 'marker', 'then',
    'otherwise', 'wake', 'channel', 'becomes', 'kept_ms', 'error', 'tells')
  return {closed = found[1] == '1', concurrency = math.min(MOST_LIVE, tonumber(found[2] or '') or MOST_LIVE),
    numbered = found[3] == '1', options = found[4] or '[]', tolerate = tonumber(found[5] or '') or 0, last = found[6] or 'null',
    marker = found[7] or '', follows = found[8], otherwise = found[9], wakes = found[10], channel = found[11], becomes = found[12],
    kept = tonumber(found[13] or '') or LOOK_AGAIN, error = found[14], tells = found[15]}
end

-- The one thing that a group does at its end, and then the status that says so.
local function end_group(group, plan, ended, succeeded)
  local allowed = plan.tolerate < 1 and floor(plan.tolerate * group.total + 1e-9) or plan.tolerate
  local status = plan.becomes or ((group.total - succeeded > allowed or plan.error) and 'failed' or 'completed')
  local call = status == 'completed' and plan.follows or status == 'failed' and plan.otherwise
  local id = group.name .. '-then-' .. group.generation
  if call and redis.call('EXISTS', jobs .. id) == 0 then
    local result = group.chained and status == 'completed' and plan.last or '{"schedq:batch":"' .. group.name .. '"}'
    make_call(id, filled_in(call, plan.marker, result))
  end
  if plan.wakes and wake_run(plan.wakes) then jobs_made = jobs_made + 1 end
  redis.call('HSET', group.key, 'status', status, 'ended_at_ms', stamp, 'ended', ended, 'succeeded', succeeded)
  if plan.channel then redis.pcall('PUBLISH', plan.channel, '{"status":"' .. status .. '","at_ms":' .. stamp .. '}') end
  if plan.tells then redis.pcall('PUBLISH', plan.tells, 'ended ' .. group.name) end
  -- If a run of another queue waits for it, someone of that queue says when it is not needed any more.
  redis.call('ZADD', groups, digits(now + (plan.tells and YEAR or plan.kept)), group.name)
end

-- The next link of a chain, if the one before completed. Returns whether the chain is over.
local function next_link(group, plan, ended, succeeded)
  local id = child_id(group, digits(succeeded))
  if group.status == 'running' and plan.closed and ended == succeeded and succeeded < group.total
    and redis.call('EXISTS', jobs .. id) == 0 then
    local payload, options = filled_in(redis.call('LINDEX', group.items, -1 - succeeded), plan.marker, plan.last)
    make_call(id, payload, options, 'group', group.name .. ' ' .. digits(succeeded) .. ' ' .. group.generation)
  end
  if group.status == 'cancelling' then return ended > succeeded or redis.call('EXISTS', jobs .. id) == 0 end
  return plan.closed and (ended > succeeded or succeeded == group.total)
end

-- More children, as many as there is room for. Returns whether the group is over, and whether more could be made.
local function next_children(group, plan, ended)
  local waiting = redis.pcall('LLEN', group.items)
  if type(waiting) ~= 'number' then return false, false, ended end  -- damaged
  local live = group.total - ended - (plan.numbered and 0 or waiting)  -- what is made again keeps its bit until then
  if group.status == 'cancelling' then return live <= 0, false, ended end
  local room = math.min(plan.concurrency - live, waiting)
  local count = math.min(room, MOST_MADE - jobs_made)
  if count > 0 then
    local fresh = make_children(group, plan, group.total - waiting, count)
    if plan.numbered and fresh > 0 then ended = redis.call('HINCRBY', group.key, 'ended', -fresh) end
  end
  return plan.closed and waiting <= 0 and ended == group.total, room > count, ended
end

-- Continue a group whose counters are right. Returns whether something is left to do now.
local function go_on(group, ended, succeeded, is_recounted)
  local plan, is_over, has_more = read_plan(group), nil, false
  if group.chained then
    is_over = next_link(group, plan, ended, succeeded)
  else
    is_over, has_more, ended = next_children(group, plan, ended)
  end
  if is_over and not is_recounted and redis.call('BITCOUNT', group.counted_key) ~= ended then return true end
  if is_over then
    end_group(group, plan, ended, redis.call('BITCOUNT', group.succeeded_key))
  elseif not has_more then
    redis.call('ZADD', groups, group.look_at or digits(now + LOOK_AGAIN), group.name)
  end
  return has_more
end

-- After all jobs of the script: continue the groups of those that ended. Returns whether the promoter should look at once, and
-- whether jobs were made.
local function go_on_with_groups()
  local has_more = false
  for _, group in pairs(told) do
    if group and not group.was_marked then
      local ended = redis.pcall('HINCRBY', group.key, 'ended', group.ended)
      local succeeded = redis.pcall('HINCRBY', group.key, 'succeeded', group.succeeded)
      if group.more_bytes > 0 then redis.pcall('HINCRBY', group.key, 'bytes', group.more_bytes) end
      if type(ended) == 'number' and type(succeeded) == 'number' then
        has_more = go_on(group, ended, succeeded) or has_more
      end
    end
  end
  return has_more, jobs_made > 0
end
