package waitdb_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// A kept is what Redis keeps of the waiting jobs, read from its keys.
type kept struct {
	records          map[string]keptJob  // by queue and ID
	waiting, granted map[string][]string // by lane, queues and IDs
	reserved, demand map[string]int      // by meter, as the records say
}

// keptJob is a job's record.
type keptJob struct {
	lane     string
	meters   []string
	costs    []int
	patience bool
	named    bool // as one whose time is up
}

func (y *simulation) members(name string) []string {
	return y.rdb.ZRange(background, hg(name), 0, -1).Val()
}

func (y *simulation) hash(name string) map[string]string {
	return y.rdb.HGetAll(background, hg(name)).Val()
}

func (y *simulation) kept() kept {
	k := kept{
		records: map[string]keptJob{}, waiting: map[string][]string{}, granted: map[string][]string{},
		reserved: map[string]int{}, demand: map[string]int{},
	}
	for job, record := range y.hash("jobs") {
		k.records[job] = readRecord(record)
	}
	for _, kind := range []string{"lane:", "granted:"} {
		for _, key := range y.rdb.Keys(background, hg(kind+"*")).Val() {
			lane := strings.TrimPrefix(key, hg(kind))
			queue, _, _ := strings.Cut(lane, "\n")
			for _, z := range y.rdb.ZRangeWithScores(background, key, 0, -1).Val() {
				job := queue + "\n" + z.Member.(string)
				if kind == "lane:" {
					k.waiting[lane] = append(k.waiting[lane], job)
					k.records[job].count(k.demand)
					continue
				}
				k.granted[lane] = append(k.granted[lane], job)
				if z.Score > 0 {
					k.records[job].count(k.reserved)
				}
			}
		}
	}
	return k
}

// readRecord reads ticket, since, grant, patience and denials, costs and lane.
func readRecord(text string) (job keptJob) {
	fields := strings.SplitN(text, "\n", 6)
	job.patience, job.named, job.lane = fields[3] >= "1", fields[3] >= "2", fields[5]
	job.meters = strings.Split(job.lane, "\n")[1:]
	for cost := range strings.SplitSeq(fields[4], ",") {
		n, _ := strconv.Atoi(cost)
		job.costs = append(job.costs, n)
	}
	return job
}

func (job keptJob) count(permits map[string]int) {
	for i, meter := range job.meters {
		permits[meter] += job.costs[i]
	}
}

// inOrder checks what Redis keeps of waiting jobs against itself. What hands have
// edited may be out of order till the end.
func (y *simulation) inOrder(t *rapid.T) {
	k := y.kept()
	y.lanesInOrder(t, k)
	if y.edited {
		return
	}
	nowhere := 0 // their time is up
	for job, record := range k.records {
		places := 0
		for _, in := range []map[string][]string{k.waiting, k.granted} {
			for lane, jobs := range in {
				if slices.Contains(jobs, job) {
					places++
					if lane != record.lane {
						t.Fatalf("job %q of lane %q is in %q", job, record.lane, lane)
					}
				}
			}
		}
		over := record.named || record.patience && int64(y.rdb.ZScore(background, hg("deadlines"), job).Val()) <= y.now.UnixMicro()
		if places == 0 && over {
			nowhere++
		} else if places != 1 {
			t.Fatalf("job %q is in %d places", job, places)
		}
	}
	standing := 0
	for _, in := range []map[string][]string{k.waiting, k.granted} {
		for _, jobs := range in {
			standing += len(jobs)
		}
	}
	if standing != len(k.records)-nowhere {
		t.Fatalf("%d jobs stand in lanes, %d are known, of %d the time is up", standing, len(k.records), nowhere)
	}
	same(t, "demand", y.hash("demand"), k.demand)
	meters := y.hash("meters")
	maps.DeleteFunc(meters, func(field, _ string) bool { return strings.HasSuffix(field, "\n") }) // lanes that take turns
	same(t, "reserved", meters, k.reserved)
	y.patienceInOrder(t, k)
}

// lanesInOrder: what is kept of lanes is kept of those that are known, and they
// are those of which something waits or is granted.
func (y *simulation) lanesInOrder(t *rapid.T, k kept) {
	lanes := y.members("lanes")
	for lane := range k.waiting {
		if !slices.Contains(lanes, lane) {
			t.Fatalf("lane %q waits and is not known", lane)
		}
	}
	for lane := range k.granted {
		if !slices.Contains(lanes, lane) {
			t.Fatalf("of lane %q jobs are granted, and it is not known", lane)
		}
	}
	for lane := range y.hash("tickets") {
		if !slices.Contains(lanes, strings.TrimSuffix(lane, "\n")) { // after which is the time at which it had its last turn
			t.Fatalf("lane %q has tickets and is not known", lane)
		}
	}
	for _, lane := range y.rdb.SMembers(background, hg("full")).Val() {
		if !slices.Contains(lanes, lane) {
			t.Fatalf("lane %q is full and is not known", lane)
		}
	}
	for _, lane := range lanes {
		if len(k.waiting[lane])+len(k.granted[lane]) == 0 && !y.edited {
			t.Fatalf("lane %q is known, but nothing of it waits", lane)
		}
	}
}

// marksInOrder: every lane that waits has the mark of a meter where it waits, once
// turns were given, so that no newcomer slips by. But what waits in a queue that
// takes nothing does not delay other jobs.
func (y *simulation) marksInOrder(t *rapid.T) {
	k, marks := y.kept(), y.hash("contended")
	for lane := range k.waiting {
		queue, meters, _ := strings.Cut(lane, "\n")
		marked := func(meter string) bool { _, marked := marks[meter]; return marked }
		excused := y.overdue(k, queue) || y.now.Before(y.parked[queue]) || y.edited
		if !slices.ContainsFunc(strings.Split(meters, "\n"), marked) && !excused {
			t.Fatalf("lane %q waits, and newcomers may take all that it needs: %v", lane, marks)
		}
	}
}

// probeWithin is how long it takes the dispatcher to ask about a queue that it takes for
// stopped.
const probeWithin = time.Second

// overdue reports whether a granted job of the queue has not arrived in time.
func (y *simulation) overdue(k kept, queue string) bool {
	for lane := range k.granted {
		if of, _, _ := strings.Cut(lane, "\n"); of == queue && y.rdb.ZCount(background, hg("granted:"+lane), "0", "0").Val() > 0 {
			return true
		}
	}
	return false
}

// patienceInOrder: those and only those whose wait may end have a time for it.
func (y *simulation) patienceInOrder(t *rapid.T, k kept) {
	ends := y.members("deadlines")
	for job, record := range k.records {
		if record.patience != slices.Contains(ends, job) {
			t.Fatalf("job %q: its wait may end: %t, and is known to: %v", job, record.patience, ends)
		}
	}
	for _, job := range ends {
		if _, known := k.records[job]; !known {
			t.Fatalf("the wait of job %q ends, and it is not known", job)
		}
	}
}

func same(t *rapid.T, what string, counters map[string]string, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for id, text := range counters {
		got[id], _ = strconv.Atoi(text)
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%s is %v, by the jobs %v", what, got, want)
	}
}
