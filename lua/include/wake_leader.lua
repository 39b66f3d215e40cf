-- @include scope

-- Sends a notification after which a turn may be due. If the leader's lease lasts longer than
-- WOKEN_LEASE_MS, because no turn was due, it is cut to that time. A leader that lives renews it
-- before it ends. If the leader has died, another process leads soon.
local WOKEN_LEASE_MS = 1000
local function wake_leader(notification)
  call('PUBLISH', hg('wake'), notification)
  if call('PTTL', hg('leader')) > WOKEN_LEASE_MS then call('PEXPIRE', hg('leader'), WOKEN_LEASE_MS) end
end
