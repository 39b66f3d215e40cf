package cron

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
)

func TestValidate_NamesFieldAndValue(t *testing.T) {
	good := Entry{Name: "report", Cron: "0 9 * * *", Type: "report:send"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*Entry)
		want   string
	}{
		{"no name", func(e *Entry) { e.Name = "" }, `name "": want 1 to 100 letters`},
		{"no cron", func(e *Entry) { e.Cron = " " }, `cron " ": want a cron line`},
		{"31 February", func(e *Entry) { e.Cron = "0 0 31 2 *" }, `cron "0 0 31 2 *": it never ticks`},
		{"empty list", func(e *Entry) { e.Cron = ", * * * *" }, "never ticks"},
		{"four fields", func(e *Entry) { e.Cron = "0 9 * *" }, "expected 5 to 6 fields, found 4"},
		{"minute 60", func(e *Entry) { e.Cron = "60 9 * * *" }, "end of range (60) above maximum (59)"},
		{"wraps from 70", func(e *Entry) { e.Cron = "70-2 9 * * *" }, "beginning of range (70)"},
		{"second monday", func(e *Entry) { e.Cron = "0 0 * * MON#2" }, "MON#2"},
		{"last day", func(e *Entry) { e.Cron = "0 0 L * *" }, `want five fields of *, numbers, names, lists, ranges and steps`},
		{"weekday", func(e *Entry) { e.Cron = "0 0 15W * *" }, "want five fields"},
		{"hash", func(e *Entry) { e.Cron = "H * * * *" }, "want five fields"},
		{"reboot", func(e *Entry) { e.Cron = "@reboot" }, "unrecognized descriptor: @reboot; want five fields"},
		{"step", func(e *Entry) { e.Cron = "*/90 * * * *" }, "the step in */90 is larger than its range, so that one value matches: list the values, or use @every"},
		{"hour step", func(e *Entry) { e.Cron = "0 */36 * * *" }, "the step in */36"},
		{"step in a list", func(e *Entry) { e.Cron = "5,*/70 * * * *" }, "the step in */70"},
		{"day step", func(e *Entry) { e.Cron = "0 0 */31 * *" }, "the step in */31"},
		{"step of a range", func(e *Entry) { e.Cron = "0 22-2/9 * * *" }, "the step in 22-2/9"},
		{"weekday 8", func(e *Entry) { e.Cron = "0 0 * * 8" }, "end of range (8) above maximum (6)"},
		{"every 100ms", func(e *Entry) { e.Cron = "@every 100ms" }, "at least 1s"},
		{"every other", func(e *Entry) { e.Cron = "@every day" }, "such as @every 90s"},
		{"TZ", func(e *Entry) { e.Cron = "TZ=Asia/Tokyo 0 9 * * *" }, "put the time zone in zone"},
		{"unknown zone", func(e *Entry) { e.Zone = "Mars/Base" }, `zone "Mars/Base": want an IANA time zone`},
		{"local zone", func(e *Entry) { e.Zone = "Local" }, `zone "Local": it differs from machine`},
		{"no type", func(e *Entry) { e.Type = "" }, `task "": want a task type`},
		{"blank queue", func(e *Entry) { e.Queue = " " }, `queue " ": leave it out`},
		{"jitter", func(e *Entry) { e.Jitter = 1500 * time.Millisecond }, `jitter "1.5s": want whole`},
		{"missed", func(e *Entry) { e.Missed = "never" }, `missed "never": want one of skip, once, all`},
		{"missed max", func(e *Entry) { e.MissedMax = -1 }, `missed_max "-1": want 0`},
		{"overlap counts", func(e *Entry) { e.Overlap, e.OverlapCounts = OverlapSkip, "all" }, `overlap_counts "all": want one of running, retrying`},
		{"overlap counts without skip", func(e *Entry) { e.OverlapCounts = CountsRetrying }, `overlap_counts "retrying": want overlap: skip as well, or leave it out`},
		{"overlap", func(e *Entry) { e.Overlap = "no" }, `overlap "no": want one of allow, skip`},
		{"task id", func(e *Entry) { e.Options = []asynq.Option{asynq.TaskID("x")} }, "leave it out: the job's ID"},
		{"queue option", func(e *Entry) { e.Options = []asynq.Option{asynq.Queue("x")} }, "set queue"},
		{"group", func(e *Entry) {
			e.Options, e.Jitter = []asynq.Option{asynq.Group("g")}, time.Second
		}, "does not aggregate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := good
			tc.change(&e)
			err := e.Validate()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it to say %s", err, tc.want)
			}
			if _, ok := errors.AsType[*throttle.FieldError](err); !ok {
				t.Errorf("%T holds no *throttle.FieldError", err)
			}
		})
	}
}

func TestValidate_AnyText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cron := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`(TZ=|@every |@)?[0-9a-z*/,?@= -]{0,20}`),
			rapid.StringMatching(`([0-9*]{1,3}[/,-]?[0-9]{0,20} ){4,6}`),
		).Draw(rt, "cron")
		e := Entry{Name: "x", Cron: cron, Type: "t"}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if next := e.Next(at); (e.Validate() == nil) != next.After(at) {
			rt.Fatalf("%q: valid is %v, next is %v", cron, e.Validate(), next)
		}
	})
}

func ExampleEntry_Next() {
	newYork, _ := time.LoadLocation("America/New_York")
	nightly := Entry{Cron: "30 2 * * *", Zone: "America/New_York"}
	tick := time.Date(2026, 3, 6, 12, 0, 0, 0, newYork)
	for range 3 { // on 8 March there is no 02:30
		tick = nightly.Next(tick)
		fmt.Println(tick.Format("Mon 2 Jan 15:04 MST"))
	}
	// Output:
	// Sat 7 Mar 02:30 EST
	// Sun 8 Mar 03:00 EDT
	// Mon 9 Mar 02:30 EDT
}
