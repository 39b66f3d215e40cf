package cron

import (
	"fmt"
	"testing"
	"time"
)

func TestOriginOf(t *testing.T) {
	tick := time.Unix(1795000000, 0)
	for _, want := range []Origin{
		{defaultScope, "nightly", tick, false},
		{"shop", "a:b.c-d_e", tick, false},
		{"shop", "nightly", tick.Add(time.Microsecond), true},
	} {
		job := fmt.Sprint(want.At.Unix())
		if want.Triggered {
			job = "run-1795000000000001"
		}
		id := (&Runner{scope: want.Scope}).jobID(want.Entry, job)
		if got, ok := OriginOf(id); !ok || got != want {
			t.Errorf("%s: %v, %v; want %v", id, got, ok, want)
		}
	}
	for _, id := range []string{"", "nightly", "nightly@", "@5", "a@b", "nightly@run-", "a b@5", "x/y/z@5", "mail@example.com", "\x1b[31m@5"} {
		if got, ok := OriginOf(id); ok {
			t.Errorf("%q: %v", id, got)
		}
	}
}
