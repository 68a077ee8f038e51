local COUNT = {list = 'LLEN', zset = 'ZCARD', hash = 'HLEN'}

-- Lua does not roll back: a key of another type is found before the first write, not by it.
local function wrong_type(kind, ...)
  for _, key in ipairs({...}) do
    local count = redis.pcall(COUNT[kind], key)
    if type(count) ~= 'number' then
      if not string.find(count.err, 'WRONGTYPE', 1, true) then return count end
      return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. redis.call('TYPE', key).ok .. ', not a ' .. kind)
    end
  end
end

-- Redis asks about memory before a script's first write only, and lets removals pass, also of nothing:
-- so a full Redis still drains, renews and reclaims. Enqueue must not call this.
local function allow_when_full(zset) redis.call('ZREM', zset, '') end
