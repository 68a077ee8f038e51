-- Write to the audit stream what an operator or an application did to a schedule.
local function audit_schedule(act, id, note)
  if log_size ~= '0' then
    redis.pcall('XADD', log, 'MAXLEN', '~', log_size, '*', 'move', 'schedule ' .. act, 'id', id, 'attempts', 0,
      'at_ms', now, 'note', note)
  end
end
