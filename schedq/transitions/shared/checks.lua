local COUNT = {list = 'LLEN', zset = 'ZCARD', hash = 'HLEN'}
local lengths = {}  -- by key: how long it was when it was checked

-- Redis does not roll scripts back, so keys of the wrong type must be found before the first write.
local function wrong_type(kind, ...)
  for _, key in ipairs({...}) do
    local count = redis.pcall(COUNT[kind], key)
    if type(count) ~= 'number' then
      if not string.find(count.err, 'WRONGTYPE', 1, true) then return count end
      return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. redis.call('TYPE', key).ok .. ', not a ' .. kind)
    end
    lengths[key] = count
  end
end

-- Redis checks its memory only before a script's first write and always allows removals, even of nothing. So with this
-- as the first write, a full Redis still drains, renews and reclaims. Enqueue must not call it.
local function allow_when_full(zset) redis.call('ZREM', zset, '') end
