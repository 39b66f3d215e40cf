-- @include lanes

-- Has the pump look at every meter of a limit that anything waits for.
local function wake(name)
  local ids = call('ZRANGE', P .. 'due', 0, -1)
  for i = 1, #ids do
    if string.sub(ids[i], 1, #name + 1) == name .. '|' then due(ids[i], now_us) end
  end
end
