-- The memos of failures that nothing in the run followed, which therefore ended it, by field; and the fields of tries. A branch
-- continues when one of its operations, or a later gather of it, has a later memo: then the failure was dealt with. The path
-- of a branch is a gather and a branch of it, any number of times: "1.2/name". Needs numbers.
local function failures_of(id)
  local fields, memos, tries, latest = redis.call('HGETALL', jobs .. id), {}, {}, {}

  -- Call `see` for each branch above an operation, with the gather that leads to it, and for its own branch.
  local function each_branch(name, see)
    local above, gather = '', nil
    for part in string.gmatch(string.match(name, '^(.*)/') or '', '[^./]+') do
      if gather then
        above, gather = above .. '.' .. gather .. '.' .. part, nil
      else
        gather = part
        see(above, gather)
      end
    end
    see(above)
  end

  for n = 1, #fields, 2 do
    local kind, name = string.match(fields[n], '^(%l+):(.*)$')
    if kind == 'tries' then tries[#tries + 1] = fields[n] end
    if kind == 'step' then
      local number = whole(
        string.match(fields[n + 1], ',%d+,%d+,%d+,(%d+)%]$') or string.match(fields[n + 1], ',(%d+),"[%w_.-]+"%]$'))
      memos[#memos + 1] = {fields[n], name, fields[n + 1], number}
      each_branch(name, function(branch, gather)
        if not latest[branch] or latest[branch][1] < number then latest[branch] = {number, gather} end
      end)
    end
  end
  local open = {}
  for _, memo in ipairs(memos) do
    if string.find(memo[3], '^%["%l+","error",') then
      local is_followed = false
      each_branch(memo[2], function(branch, gather)
        local last = latest[branch]
        if last[1] > memo[4] and (not gather or last[2] ~= gather) then is_followed = true end
      end)
      if not is_followed then open[memo[1]] = memo[3] end
    end
  end
  return open, tries
end
