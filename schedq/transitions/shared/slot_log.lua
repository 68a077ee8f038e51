-- What became of a slot, or of several in a row: a line of JSON, the newest at the left, so many of them and a few.
local now_text = digits(now)
local function slot_line(slot, to, count, outcome, note)
  return '{"slot_ms":' .. slot .. ',"to_ms":' .. to .. ',"count":' .. count .. ',"outcome":"' .. outcome .. '",' .. note
    .. ',"at_ms":' .. now_text .. '}'
end

-- Lines that an error kept from being followed by the next slot may be there already. History never stops a slot.
local function write_slot_log(key, lines, kept, may_be_there)
  if may_be_there then
    local newest, begins = redis.pcall('LINDEX', key, 0), string.match(lines[#lines], '^{"slot_ms":%d+,"to_ms":%d+,')
    if type(newest) == 'string' and string.sub(newest, 1, #begins) == begins then return end
  end
  local length = redis.pcall('LPUSH', key, unpack(lines))
  if type(length) == 'number' and length > kept + 20 then redis.pcall('LTRIM', key, 0, kept - 1) end
end
