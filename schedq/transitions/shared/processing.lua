-- Whether `processing` contains an id: it has a lease, or else a search finds it (other programs' claims have no lease).
local function is_processing(id)
  local lease = redis.call('ZSCORE', leases, id)
  return (lease and tonumber(lease) > 0) or redis.call('LPOS', processing, id)
end
