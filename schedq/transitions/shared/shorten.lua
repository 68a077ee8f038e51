local MOST_KEPT = 1024  -- bytes of a memo; as LARGE_MEMO in run.lua

-- Take the values out of the large memos of a run that has completed. The graph of a flow stays.
local function shorten_memos(id)
  local fields, short = redis.call('HGETALL', jobs .. id), {}
  for n = 1, #fields, 2 do
    local is_memo = string.sub(fields[n], 1, 5) == 'step:' and string.sub(fields[n + 1], 1, 7) ~= '["plan"'
    if is_memo and #fields[n + 1] > MOST_KEPT then
      local head, tail = string.match(fields[n + 1], '^(%["%l+","%l+",).*(,%d+,%d+,%d+,%d+,"[%w_.-]+"%])$')
      if not head then head, tail = string.match(fields[n + 1], '^(%["%l+","%l+",).*(,%d+,%d+,%d+,%d+%])$') end
      if head then short[#short + 1], short[#short + 2] = fields[n], head .. 'null' .. tail end
    end
  end
  for n = 1, #short, 1000 do redis.call('HSET', jobs .. id, unpack(short, n, math.min(n + 999, #short))) end
end
