package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// tenantRule has the part of the payload before the first space as the fairness key, and the rest as
// needs.
func tenantRule(task *asynq.Task) (Rule, error) {
	tenant, needs, _ := strings.Cut(string(task.Payload()), " ")
	r, err := ruleOfPayload(asynq.NewTask("job", []byte(needs)))
	r.FairnessKey = tenant
	return r, err
}

// startOf returns how many jobs began before the first job of a tenant.
func (st *stack) startOf(tenant string) int {
	return slices.IndexFunc(st.ran(), func(r run) bool { return strings.HasPrefix(r.id, tenant+"-") })
}

// TestOrderPending_ScarceSlots: if slots are scarcer than limits, a tenant's one job does not wait for
// 200 jobs of another tenant, whatever the limits are.
func TestOrderPending_ScarceSlots(t *testing.T) {
	t.Parallel()
	four := throttle.Limit{Name: "four", Kind: throttle.Concurrency, Capacity: 4, Lease: 30 * time.Second}
	for name, row := range map[string]struct {
		needs   string
		slots   int
		between time.Duration // between the jobs of the two
		takes   time.Duration
		most    int // jobs that begin before
	}{
		"no limit":                      {"", 4, 0, time.Second, 8},
		"as many permits as slots":      {" four", 4, 0, time.Second, 8},
		"a looser limit":                {" loose", 8, 0, time.Second, 16},
		"a job that comes later":        {"", 4, 10500 * time.Millisecond, time.Second, 52},
		"slots that are taken for long": {"", 4, 25 * time.Second, 10 * time.Second, 16},
		"short jobs":                    {"", 4, 0, 20 * time.Millisecond, 40},
	} {
		t.Run(name, func(t *testing.T) {
			limits := []throttle.Limit{four, funnel("loose", 1000, 1000)}
			virtual(t, settings{config: asynq.Config{Concurrency: row.slots}, limits: limits, rule: tenantRule, handle: takes(row.takes)}, func(t *testing.T, st *stack) {
				for i := range 200 {
					st.enqueue(needing("a"+row.needs), numbered("a", i))
				}
				time.Sleep(row.between)
				st.enqueue(needing("b"+row.needs), numbered("b", 0))
				time.Sleep(201 * row.takes)
				if got := st.startOf("b"); got < 0 || got > row.most {
					t.Errorf("the job of b began after %d jobs of a, want at most %d", got, row.most)
				}
				st.wantOnceEach(201)
				st.wantClean()
			})
		})
	}
}

// TestOrderPending_SeveralServers: tenants take turns by their weights over all servers, the jobs of
// each keep their order, and jobs without a key have their turns, too.
func TestOrderPending_SeveralServers(t *testing.T) {
	t.Parallel()
	rule := func(task *asynq.Task) (Rule, error) {
		r, err := tenantRule(task)
		if r.FairnessKey == "c" {
			r.FairnessWeight = 2
		}
		if r.FairnessKey == "none" {
			r.FairnessKey = ""
		}
		return r, err
	}
	s := settings{config: asynq.Config{Concurrency: 2}, limits: onePerSecond, rule: rule, handle: takes(time.Second)}
	virtual(t, s, func(t *testing.T, st *stack) {
		other := st.beside(s)
		for _, tenant := range []string{"a", "b", "c", "none"} {
			for i := range 60 {
				st.enqueue(needing(tenant), numbered(tenant, i))
			}
		}
		time.Sleep(25500 * time.Millisecond)
		turns := st.turnsOf(time.Time{})
		for tenant, n := range other.turnsOf(time.Time{}) {
			turns[tenant] += n
		}
		for tenant, want := range map[string]int{"a": 20, "b": 20, "c": 40, "none": 20} {
			if turns[tenant] < want-4 || turns[tenant] > want+8 {
				t.Errorf("%v, want %s to have %d turns", turns, tenant, want)
			}
		}
	})
}

// TestOrderPending_SlowRules: jobs take turns before the keys of all pending jobs are known, also with
// two servers.
func TestOrderPending_SlowRules(t *testing.T) {
	t.Parallel()
	rule := func(task *asynq.Task) (Rule, error) {
		time.Sleep(keyTime - 100*time.Millisecond)
		return tenantRule(task)
	}
	s := settings{config: asynq.Config{Concurrency: 2}, limits: onePerSecond, rule: rule, handle: takes(time.Second)}
	virtual(t, s, func(t *testing.T, st *stack) {
		other := st.beside(s)
		for i := range 6 * maxKeyPage {
			if i == maxKeyPage {
				st.enqueue(needing("b"), numbered("b", 0))
			}
			st.enqueue(needing("a"), numbered("a", i))
		}
		time.Sleep(7 * time.Second)
		if st.startOf("b") < 0 && other.startOf("b") < 0 {
			t.Errorf("%d and %d jobs of a began, and no job of b", len(st.ran()), len(other.ran()))
		}
	})
}
