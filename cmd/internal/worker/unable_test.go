package worker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// What a worker cannot do because of its own config or version may be done by another worker, for
// example in a deploy. Such a job waits for unknown_for, without an attempt and without permits.
func TestJobs_UnknownToThisWorker_WaitForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := parse(t, `
limits: {daily: {kind: fixed_window, rate: 2000/day}}
tasks:
  http:request: {limits: [{limit: daily}]}
  crawl:fetch: {limits: [{limit: daily}]}
commands: {gone: {run: [/nowhere/gone]}}
`)
		w, _ := upstreamWorker(t, conf, nil)
		rows := []struct {
			typename, payload string
			lacks             string
			end               asynq.TaskState // after unknown_for
		}{
			{"exec:resize", "{}", `command "resize": this worker has none of that name`, asynq.TaskStateArchived},
			{"exec:gone", "{}", "/nowhere/gone: no such file", asynq.TaskStateArchived},
			{"mail:send", "{}", `handler not found for task "mail:send"`, asynq.TaskStateRetry},
			{"http:request", `{"url":"http://10.1.2.3/"}`, "address 10.1.2.3 is not public", asynq.TaskStateArchived},
			{"crawl:fetch", `{"crawl":"c","url":"http://10.1.2.3/"}`, "address 10.1.2.3 is not public", asynq.TaskStateArchived},
			{"http:request", `{"url":"https://api.example/","headers":{"X":"${env:API_TOKEN}"}}`, "secret env:API_TOKEN is not in http.secrets", asynq.TaskStateRetry},
			{"http:request", `{"url":"https://api.example/","save":"pages/"}`, "no folder to save to", asynq.TaskStateRetry},
		}
		ids := make([]string, len(rows))
		for i, row := range rows {
			info, err := scheduler.NewClient(w.options.Redis).Enqueue(asynq.NewTask(row.typename, []byte(row.payload)))
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = info.ID
		}
		check := func(when, text string, want func(end asynq.TaskState) (asynq.TaskState, int)) {
			t.Helper()
			synctest.Wait()
			for i, row := range rows {
				info, err := asynq.NewInspectorFromRedisClient(w.options.Redis).GetTaskInfo("default", ids[i])
				if err != nil {
					t.Fatal(err)
				}
				if info.State == asynq.TaskStatePending { // between two put-backs
					info.State = asynq.TaskStateRetry
				}
				state, retried := want(row.end)
				if info.State != state || info.Retried != retried {
					t.Errorf("%s: %s %s is %s, retried %d times; want %s, %d times", when, row.typename, row.payload, info.State, info.Retried, state, retried)
				}
				for _, part := range []string{"worker " + asynqdb.ProcessName(), row.lacks, text} {
					if !strings.Contains(info.LastErr, part) && state != asynq.TaskStateRetry == (when == "later") {
						t.Errorf("%s: %s %s: the error is %q, want %q in it", when, row.typename, row.payload, info.LastErr, part)
					}
				}
			}
		}
		time.Sleep(scheduler.DefaultUnknownFor - 10*time.Second)
		check("soon", "put back for another worker until ", func(asynq.TaskState) (asynq.TaskState, int) { return asynq.TaskStateRetry, 0 })
		if d, err := throttle.New(w.options.Redis, throttle.Options{}).AllowN(t.Context(), "daily", "", 0); err != nil || d.Remaining != 2000 {
			t.Errorf("%d of 2000 permits are left, %v: want all", d.Remaining, err)
		}
		time.Sleep(20 * time.Second)
		check("later", "no other worker could run the job for 10 min", func(end asynq.TaskState) (asynq.TaskState, int) {
			if end == asynq.TaskStateRetry {
				return end, 1 // its next attempt is put back by now
			}
			return end, 0
		})
	})
}
