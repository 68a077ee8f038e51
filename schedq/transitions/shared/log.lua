-- Write a move to the audit stream. It is a hint, so it never stops a move.
local function write_log(move, id, attempts, note)
  if log_size == '0' then return end
  if note then
    redis.pcall('XADD', log, 'MAXLEN', '~', log_size, '*', 'move', move, 'id', id, 'attempts', attempts, 'at_ms', stamp,
      'note', note)
  else
    redis.pcall('XADD', log, 'MAXLEN', '~', log_size, '*', 'move', move, 'id', id, 'attempts', attempts, 'at_ms', stamp)
  end
end
