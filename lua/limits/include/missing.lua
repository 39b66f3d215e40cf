-- Returns a closed meter in place of the meter of a limit that does not exist, or that is for other
-- apps. Jobs wait at it until the limit is defined. Callers ask again in a minute. See load_meter
-- for the fields.
local function missing_meter(id, name, is_for_others)
  return {
    id = id, name = name, kind = 'missing', state = false, known = false, windowed = false, closed = true, lanes = false, reserved_version = false, granted = 0,
    n = 1, period_us = 60000000, capacity = MAX_INT, shown_capacity = is_for_others and -1 or 0, rate = '1 60000000', index = 0, cost = 0, reserved = 0, newly_reserved = 0,
    ready_at = function(_, from) return math.max(now_us + 60000000, from or 0) end,
    left = function() return 0 end,
    full_at = function() return now_us end,
  }
end
