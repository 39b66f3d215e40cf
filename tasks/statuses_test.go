package tasks_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

var update = flag.Bool("update", false, "write the table of statuses into docs/limits.md")

// statuses are the rows of the table of statuses in docs/limits.md.
var statuses = [][]int{{429, 418, 420, 430, 529}, {503}, {403}, {500, 502, 504, 408, 425}, {423, 404, 410}}

// TestStatuses writes for each status what becomes of a job whose call gets it: with a time that
// counts, with one that does not, and without. docs/limits.md has the same table. With -update the
// test writes it.
func TestStatuses(t *testing.T) {
	var table strings.Builder
	table.WriteString("| status | with a time that counts | with another time | without a time |\n|---|---|---|---|\n")
	time60 := http.Header{"Retry-After": {"60"}}
	other := scheduler.Rule{Needs: []throttle.Need{{Limit: "host", Key: "other.example"}}}
	for _, row := range statuses {
		var cells []string
		for _, status := range row {
			is := []string{statusOutcome(t, byHost(), status, time60), statusOutcome(t, other, status, time60), statusOutcome(t, byHost(), status, nil)}
			if cells == nil {
				cells = is
			}
			if !slices.Equal(is, cells) {
				t.Errorf("%d: %q, want that of %d: %q", status, is, row[0], cells)
			}
		}
		names := strings.Trim(strings.ReplaceAll(fmt.Sprint(row), " ", ", "), "[]")
		fmt.Fprintf(&table, "| %s | %s |\n", names, strings.Join(cells, " | "))
	}
	const page, begin = "../docs/limits.md", "<!-- statuses: go test ./tasks -run Statuses -update writes this table -->\n"
	text := proctest.ReadFile(t, page)
	before, rest, ok := strings.Cut(text, begin)
	_, after, _ := strings.Cut(rest, "\n\n")
	want := before + begin + strings.TrimSuffix(table.String(), "\n") + "\n\n" + after
	switch {
	case !ok:
		t.Fatalf("%s has no %q", page, begin)
	case t.Failed() || want == text:
	case !*update:
		t.Errorf("the table of statuses in %s is not what the code does:\n%s", page, &table)
	default:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// statusOutcome runs a job whose first call gets the status and the header, and returns what becomes
// of the job.
func statusOutcome(t *testing.T, rule scheduler.Rule, status int, header http.Header) (outcome string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		u := &upstream{status: status, header: header}
		limiter := u.serve(t, rdb, rule, u.call, new(tasks.Feedback))
		if _, err := scheduler.NewClient(rdb).Enqueue(asynq.NewTask("call", nil), asynq.TaskID("it"), asynq.MaxRetry(3), asynq.Retention(time.Hour)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		blocks, err := limiter.Blocks(t.Context(), "host")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(70 * time.Second)
		info, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", "it")
		if err != nil {
			t.Fatal(err)
		}
		waited := len(u.calls) == 2 && u.calls[1] >= time.Minute
		switch {
		case info.State == asynq.TaskStateArchived:
			outcome = "archived"
		case len(blocks) > 0 && waited:
			outcome = "its keys are blocked until then"
		case len(blocks) > 0:
			outcome = "its keys are blocked, longer each time"
		case info.Retried == 0 && waited:
			outcome = "it waits until then"
		case waited:
			outcome = "failed attempt, the next one not before then"
		default:
			outcome = "failed attempt"
		}
		if len(blocks) > 0 && info.Retried > 0 {
			t.Errorf("%d: the job spent %d attempts, want none with a block", status, info.Retried)
		}
	})
	return outcome
}
