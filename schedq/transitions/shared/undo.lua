-- What a run has done is undone before it ends in another way than by its success: `undos=` in its field `run` says how many
-- undos are open, and `undoing=` that the run only undoes any more, because it failed (1) or was cancelled (2). `left=1`: it
-- ended although some are open, by a decision; see model/runs.py. Needs numbers.
local function open_undos(run) return run and whole(string.match(run, ' undos=(%d+)')) or 0 end

local function undoing_of(run) return run and string.match(run, ' undoing=(%d)') or nil end

local function without(run, name) return (string.gsub(run, ' ' .. name .. '=%d+', '')) end

-- `run` of one that begins to undo what it has done. Its deadline has no more meaning.
local function to_undo(run, is_cancelled)
  return without(without(run, 'deadline'), 'left') .. ' undoing=' .. (is_cancelled and '2' or '1')
end
