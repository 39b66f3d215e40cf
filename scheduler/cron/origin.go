package cron

import (
	"strconv"
	"strings"
	"time"
)

// Origin is where a job comes from.
type Origin struct {
	Scope, Entry string
	// At is the tick, or the moment of the Trigger if Triggered.
	At        time.Time
	Triggered bool
}

// OriginOf reads the id of a job that an entry enqueued. It reports false for
// every other id, but cannot tell one that somebody has made up in the same form.
// The scope must have the letters of an entry's name.
func OriginOf(id string) (o Origin, ok bool) {
	scope, name, scoped := strings.Cut(id, "/")
	if !scoped {
		scope, name = defaultScope, id
	}
	entry, when, _ := strings.Cut(name, "@")
	number, triggered := strings.CutPrefix(when, "run-")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !entryName.MatchString(entry) || !entryName.MatchString(scope) {
		return Origin{}, false
	}
	at := time.Unix(n, 0)
	if triggered {
		at = time.UnixMicro(n)
	}
	return Origin{scope, entry, at, triggered}, true
}
