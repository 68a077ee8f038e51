local floor, format = math.floor, string.format

-- Lua's tostring would turn 15 digits into 2.5e+14.
local function digits(number) return format('%.0f', number) end

-- A stored count, whichever program wrote it: garbage, NaN, infinities and negative numbers read as 0.
local function whole(text)
  local number = tonumber(text or '')
  if not number or number ~= number or number < 0 or number > 9007199254740991 then return 0 end
  return floor(number)
end
