-- What is stored of a run: the field `run`, memos, and boxes of messages; see model/runs.py. Needs clock and numbers.
local MOST_MEMOS, MOST_OF_FLOW, MOST_RECORD, KEPT_BACK, LARGE_MEMO = 500, 1500, 1048576, 4096, 1024

-- The fields of a job, if the token is that of its claim; else nil. The first five are as named here.
local function held_run(id, token, ...)
  local job = redis.pcall('HMGET', jobs .. id, 'status', 'claim_token', 'stop', 'run', 'attempts', ...)
  if not job.err and token ~= '' and job[1] == 'processing' and job[2] == token then return job end
end

-- A number in `run`, and `run` with another number in it: "v=2 steps=3 bytes=212".
local function number_in(run, name) return whole(string.match(' ' .. run, ' ' .. name .. '=(%d+)')) end

local function with_number(run, name, number)
  local text = name .. '=' .. digits(number)
  local changed, count = string.gsub(' ' .. run, ' ' .. name .. '=%d+', ' ' .. text)
  return count > 0 and string.sub(changed, 2) or run .. ' ' .. text
end

local function outcome_of(memo) return string.match(memo, '^%["%l+","(%l+)",') end

-- `run` with one memo more (by = 1) or less (by = -1).
local function counted(run, memo, by)
  run = with_number(run, 'steps', math.max(0, number_in(run, 'steps') + by))
  run = with_number(run, 'bytes', math.max(0, number_in(run, 'bytes') + by * #memo))
  if #memo > LARGE_MEMO then run = with_number(run, 'large', math.max(0, number_in(run, 'large') + by)) end
  if outcome_of(memo) == 'error' then run = with_number(run, 'errors', math.max(0, number_in(run, 'errors') + by)) end
  return run
end

-- Room for one more memo. What says that something went wrong may use the bytes that are kept back for it.
local function has_room(run, memo)
  local most = MOST_RECORD + (outcome_of(memo) == 'ok' and 0 or KEPT_BACK)
  local memos = number_in(run, 'flow') == 1 and MOST_OF_FLOW or MOST_MEMOS
  return number_in(run, 'steps') < memos and number_in(run, 'bytes') + #memo <= most
end

-- A new memo: numbered, so that it is known which came first, and with more values of the script's own.
local function numbered(memo, run, more)
  local made = number_in(run, 'made') + 1
  return string.sub(memo, 1, -2) .. ',' .. digits(made) .. (more or '') .. ']', with_number(run, 'made', made)
end

-- Write a new memo and what else changes with it, in one command. It shows that the run makes progress, so lost leases,
-- attempts and releases until now no longer count.
local function write_memo(key, name, memo, run, ...)
  redis.call('HSET', key, 'step:' .. name, memo, 'run', counted(run, memo, 1), 'attempts', '1', ...)
  redis.call('HDEL', key, 'crashes', 'released', 'until:' .. name, 'tries:' .. name)
end
