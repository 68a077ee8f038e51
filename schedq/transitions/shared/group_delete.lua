-- Needs numbers and wake_run. Delete the record of a group, a page of its results at a time. Until all is gone,
-- its status says so, and no child counts for it. A run that waits for it continues. Returns whether it is gone.
local MOST_DELETED = 300
local has_woken = false

local function delete_group(name)
  local key = group_keys .. name
  local found = redis.call('HMGET', key, 'status', 'total', 'deleted', 'wake')
  if found[1] then
    redis.call('ZADD', groups, 0, name)
    redis.call('HSET', key, 'status', 'deleted')
    if found[4] and wake_run(found[4]) then has_woken = true end
    local from, buckets = whole(found[3]), math.ceil(whole(found[2]) / 100)
    local to = math.min(buckets, from + MOST_DELETED)
    for n = from, to - 1 do
      local bucket = key .. ':results:' .. digits(n)
      redis.call('UNLINK', bucket)
    end
    if to < buckets then
      redis.call('HSET', key, 'deleted', digits(to))
      return false
    end
  end
  local items, counted, succeeded, failures = key .. ':items', key .. ':counted', key .. ':succeeded', key .. ':failed'
  redis.call('UNLINK', items, counted, succeeded, failures)
  redis.call('DEL', key)
  redis.call('ZREM', groups, name)
  return true
end
