-- Totals never prevent a move: damaged ones are left as they are.
local function add_to_total(field, by)
  if by > 0 then redis.pcall('HINCRBY', stats, field, by) end
end
