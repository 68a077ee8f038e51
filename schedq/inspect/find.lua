--[[
Search one page of a state for jobs that match a filter, from where the last page ended.

A list shifts while it is scanned, because entries come and go at both ends. So the beginning of a page is identified by
the entries that were there, and these are searched for nearby; a caller that gets MOVED searches further. In a zset it is
after an entry, which may no longer exist. Only the caller reads payloads, so it decides whether a job calls a task; here
a payload only has to contain a word that every encoding of the call contains.

KEYS  source (list or zset)
ARGV  jobs, clock
      order: 'newest' (a list, from its left) | 'oldest' (a list, from its right) | 'due' (a zset)
      state: the state that a job's status must name
      position: the number of entries passed, or the score of the last one
      length (number): the most entries to look at
      most (number): the most matches to return
      carry: what to return of a match: 'id' | 'payload' (and headers, if they are searched) | 'all'
      age_field: the field with the instant from which a job's age counts
      least_age (number): the least age in ms, or ''
      most_age (number): the greatest age in ms, or ''
      word: part of the payload by which a task is recognized, or ''
      text: part of the payload or the error, or ''
      error_text: part of the error, or ''
      unique: the job's unique key, or ''
      of_gate: the job's gate, or ''
      of_key: its key there, or ''
      header: part of the stored headers, or ''
      runs: '', or for runs of workflows only: words, one a line, of which the payloads of those without a record have one
      anchors...: ids at the position (of a zset: the last one looked at); none at the beginning
Returns  {LOOKED | MOVED, now, length of the source, entries looked at, next position, {ids at that position}, per match:
         {id, due instant or '', {field, value, ...}}}; no ids at the next position means that this was the end
]]
local MOST_BYTES, MOST_FIELDS, AROUND, ANCHORS = 1048576, 2000, 512, 3
--@include clock
--@include checks
--@include numbers
local bad = wrong_type(order == 'due' and 'zset' or 'list', source)
if bad then return bad end

local there = {}
for i = anchors_start, #ARGV do there[#there + 1] = ARGV[i] end

-- Entries of a list, counted from the end where the scan began.
local function entries(first, count)
  if order == 'newest' then return redis.call('LRANGE', source, first, first + count - 1) end
  local found, turned = redis.call('LRANGE', source, -first - count, -first - 1), {}
  for i = #found, 1, -1 do turned[#turned + 1] = found[i] end
  return turned
end

local function locate(at)
  if #there == 0 or (entries(at, 1)[1] == there[1]) then return at end
  local first = math.max(0, at - AROUND)
  local around = entries(first, 2 * AROUND)
  for _, id in ipairs(there) do
    for i = 1, #around do
      if around[i] == id then return first + i - 1 end
    end
  end
end

local function is_before(id, other)  -- compare by bytes, as a zset does
  for i = 1, math.min(#id, #other) do
    local a, b = string.byte(id, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return #id < #other
end

-- The rank of the first entry of a zset after this score and id.
local function rank_after(score, id)
  local rank = redis.call('ZRANK', source, id)
  if rank and tonumber(redis.call('ZSCORE', source, id)) == tonumber(score) then return rank + 1 end
  local low, high = redis.call('ZCOUNT', source, '-inf', '(' .. score), redis.call('ZCOUNT', source, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_before(id, redis.call('ZRANGE', source, middle, middle)[1]) then high = middle else low = middle + 1 end
  end
  return low
end

local ids, dues, at, size = {}, {}, 0, nil
if order == 'due' then
  size = redis.call('ZCARD', source)
  at = #there == 0 and 0 or rank_after(position, there[1])
  local page = redis.call('ZRANGE', source, at, at + length - 1, 'WITHSCORES')
  for i = 1, #page, 2 do ids[#ids + 1], dues[#dues + 1] = page[i], page[i + 1] end
else
  size = redis.call('LLEN', source)
  at = locate(tonumber(position))
  if not at then return {'MOVED', now, size, 0, position, there} end
  ids = entries(at, length + ANCHORS)
end

-- The fields to read of every job. Those that are only returned are read of matches only.
local wanted, slot = {'status'}, {}
local function want(field)
  if not slot[field] then wanted[#wanted + 1] = field slot[field] = #wanted end
end
if least_age or most_age then want(age_field) end
if word ~= '' or text ~= '' or runs ~= '' or carry == 'payload' then want('payload') end
if text ~= '' or error_text ~= '' then want('last_error') end
if unique ~= '' then want('unique') end
if of_gate ~= '' then want('gate') end
if of_key ~= '' then want('key') end
if header ~= '' then want('headers') end
if runs ~= '' then want('run') end

local AT_REST = {pending = {pending = true}, delayed = {pending = true, delayed = true}}
local function is_of_state(status)
  if AT_REST[state] then return not status or AT_REST[state][status] end
  return status == state
end

local function is_old_enough(instant)
  if not (least_age or most_age) then return true end
  local since = whole(instant)
  return since > 0 and (not least_age or now - since >= least_age) and (not most_age or now - since <= most_age)
end

local function holds(stored, part) return stored and string.find(stored, part, 1, true) ~= nil end

local function has_word(payload)
  for part in string.gmatch(runs, '[^\n]+') do
    if holds(payload, part) then return true end
  end
end

local function matches(job)
  if not is_of_state(job[1]) or not is_old_enough(slot[age_field] and job[slot[age_field]]) then return false end
  local payload, failure = slot.payload and job[slot.payload], slot.last_error and job[slot.last_error]
  if unique ~= '' and job[slot.unique] ~= unique then return false end
  if of_gate ~= '' and job[slot.gate] ~= of_gate then return false end
  if of_key ~= '' and job[slot.key] ~= of_key then return false end
  if header ~= '' and not holds(job[slot.headers], header) then return false end
  if runs ~= '' and not job[slot.run] and not has_word(payload) then return false end
  if word ~= '' and not holds(payload, word) then return false end
  if error_text ~= '' and not holds(failure, error_text) then return false end
  return text == '' or holds(payload, text) or holds(failure, text)
end

local function carried(id, job)
  if carry == 'id' then return {} end
  if carry == 'payload' then
    return {'payload', job[slot.payload] or '', slot.headers and 'headers', slot.headers and job[slot.headers]}
  end
  local count = redis.pcall('HLEN', jobs .. id)
  return type(count) == 'number' and count <= MOST_FIELDS and redis.call('HGETALL', jobs .. id) or {}
end

local found, bytes, looked = {}, 0, 0
for i = 1, math.min(#ids, length) do
  local id = ids[i]
  local job = redis.pcall('HMGET', jobs .. id, unpack(wanted))
  if not job.err then
    for n = 1, #wanted do bytes = bytes + #(job[n] or '') end
    if bytes > MOST_BYTES and i > 1 then break end
    if (job[1] or redis.call('EXISTS', jobs .. id) == 1) and matches(job) then
      local fields = carried(id, job)
      for n = 1, carry == 'all' and #fields or 0 do bytes = bytes + #fields[n] end
      if bytes > MOST_BYTES and i > 1 then break end
      found[#found + 1] = {id, dues[i] or '', fields}
    end
  end
  looked = i
  if #found >= most then break end
end

local ahead = {}
if order == 'due' then
  if looked > 0 and at + looked < size then position, ahead = dues[looked], {ids[looked]} end
else
  position = at + looked
  for i = looked + 1, math.min(#ids, looked + ANCHORS) do ahead[#ahead + 1] = ids[i] end
end
local reply = {'LOOKED', now, size, looked, tostring(position), ahead}
for _, match in ipairs(found) do reply[#reply + 1] = match end
return reply
