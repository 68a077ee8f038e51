-- An operator's request that is sent again gets the answer that the first sending got.
local function answered(stored, request)
  if stored and string.sub(stored, 1, #request + 1) == request .. ' ' then return string.sub(stored, #request + 2) end
end
