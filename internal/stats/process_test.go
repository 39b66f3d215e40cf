package stats

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestProcesses: each is told of while it lives, for an hour when it is gone without a
// word, and no more when it has stopped.
func TestProcesses(t *testing.T) {
	m, rdb := redistest.Mini(t)
	began := time.Now()
	m.SetTime(began)
	stops, dies := New(rdb, script.Prefix("s")), New(rdb, script.Prefix("s"))
	stops.SetConfig("headgate.yaml 12345678")
	stops.Concurrency = 7
	defer stops.StartJob(Task{"default", "mail"})(Done)
	stops.sayAlive(t.Context())
	dies.sayAlive(t.Context())
	processes := func(after time.Duration) map[string]Process {
		t.Helper()
		m.SetTime(began.Add(after))
		all, err := ReadProcesses(t.Context(), rdb, "s")
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]Process{}
		for _, p := range all {
			found[p.ID] = p
		}
		return found
	}
	p := processes(0)[stops.process]
	if p.Host == "" || p.PID == 0 || p.Version == "" || p.Config != "headgate.yaml 12345678" || p.Running != 1 || p.Concurrency != 7 || p.Lost || p.LastSeen.Sub(began).Abs() > time.Second {
		t.Errorf("%+v; want all that was said", p)
	}
	if all := processes(goneAfter + time.Second); len(all) != 2 || !all[dies.process].Lost {
		t.Errorf("%+v; want both, and gone", all)
	}
	stops.sayAlive(t.Context())
	if all := processes(goneAfter + time.Second); all[stops.process].Lost || !all[dies.process].Lost {
		t.Errorf("%+v; want one that is gone", all)
	}
	stops.say(t.Context(), "")
	if all := processes(goneAfter + time.Second); len(all) != 1 || !all[dies.process].Lost {
		t.Errorf("%+v; want the one that is gone", all)
	}
	m.SetTime(began.Add(aliveLife + time.Minute))
	stops.sayAlive(t.Context())
	if all := processes(aliveLife + time.Minute); len(all) != 1 || all[stops.process].Lost {
		t.Errorf("%+v; want the one that lives", all)
	}
}
