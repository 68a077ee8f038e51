-- Needs group_end. The total of a group and the length of its list of items change together, although two commands change them:
-- a note says what they will be. Until it is gone, the mark keeps all others from taking items.
local function resolve_total(group)
  local note = redis.call('HGET', group.key, 'adding')
  local total, length = string.match(note or '', '^(%d+) (%d+)$')
  if not total then return end
  if redis.call('LLEN', group.items) == whole(length) then
    redis.call('HSET', group.key, 'total', total)
    group.total = whole(total)
  end
  redis.call('HDEL', group.key, 'adding')
end

local function add_items(group, ...)
  local total = digits(group.total + select('#', ...))
  redis.call('HSET', group.key, 'adding', total .. ' ' .. digits(redis.call('LLEN', group.items) + select('#', ...)))
  redis.call('LPUSH', group.items, ...)
  redis.call('HSET', group.key, 'total', total)
  redis.call('HDEL', group.key, 'adding')
  group.total = whole(total)
end
