package page

import "time"

// Clock is clock.
func Clock(t, now time.Time) string { return clock(t, now) }

// Actions are all actions.
func Actions() map[string]*action { return actions }
