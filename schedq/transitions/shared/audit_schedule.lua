-- What an operator, or the code of an application, did to a schedule: for audit, once per act.
local function audit_schedule(act, id, note)
  if log_size ~= '0' then
    redis.pcall('XADD', log, 'MAXLEN', '~', log_size, '*', 'move', 'schedule ' .. act, 'id', id, 'attempts', 0,
      'at_ms', now, 'note', note)
  end
end
