package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// piece is something that the dispatcher or a script does, and how to take it out between processes
// and Redis.
type piece struct {
	name   string
	breaks string // the test that fails without it, as for -test.run
	// In a script's text, with is replaced by without.
	with, without string
	// instead replies to a command in place of Redis.
	instead func(cmd redis.Cmder) bool
	once    sync.Once
	texts   sync.Map // of scripts that have the piece, by their SHA-1
	// first is the world that a simulation begins with: one that soon fails without it. Later
	// worlds follow until one fails.
	first int
}

var pieces = []*piece{
	{name: "tickets of jobs that are gone are forgotten", breaks: "TestReconcile_GoneJobComparesAll", instead: func(cmd redis.Cmder) bool {
		tickets, ok := cmd.(*redis.ScanCmd)
		if !ok || !isCommand(cmd, "hscan", "hg:{default}:jobs") {
			return false
		}
		tickets.SetVal(nil, 0)
		return true
	}},
	{name: "put-backs that are about to end are extended", breaks: "TestPostpone_TurnsGoOn", instead: func(cmd redis.Cmder) bool {
		_, ok := cmd.(*redis.ZSliceCmd)
		return ok && strings.HasPrefix(fmt.Sprint(cmd.Args()[3]), "(")
	}},
	{name: "a granted job is promoted again", breaks: "TestSimulation$", first: 8, instead: promoteOnce()},
	{name: "a reconciliation reads the lanes", breaks: "TestCorruption_Lane", instead: noLanes},
	{name: "a leader reads the lanes, and so does a reconciliation", instead: noLanes, breaks: "TestDispatcher_LosesQueues", with: "'(' .. last_known,", without: "'(' .. int(MAX_INT),"},
	{name: "granted jobs keep their order", breaks: "TestDenied_ComeBackOnce", with: "for i = #moved, 1, -1 do", without: "for i = 1, #moved do"},
	{name: "newcomers take nothing if a lane waits", breaks: "TestSimulation$", first: 13, with: "if first and not job.mark and at <= now_us then", without: "local _, at = find_bottleneck(job.meters) if at <= now_us then"},
	{name: "turns leave what is held", breaks: "TestTurns_OverlappingLimits/a_10_per_s", with: "meters[i].reserved + held[i] + meters[i].cost", without: "meters[i].reserved + meters[i].cost"},
	{name: "turns leave what is reserved", breaks: "TestSimulation$", first: 29, with: "m.reserved, m.newly_reserved = m.reserved + m.cost, m.newly_reserved + m.cost", without: ""},
	{name: "a new lane is announced", breaks: "TestPutBack_GrantedMeanwhile", with: "wake_leader('lane ' .. number)", without: ""},
	{name: "orphans are sent back to ask", breaks: "TestReconcile_OrphansAskAgain", instead: allKnown},
	{name: "a lane goes on without a job that a worker took and that has not asked", breaks: "TestDispatcher_DeadWorkersJob", with: "call('ZADD', granted, '-1', id)", without: ""},
	{name: "heartbeats count the changes", breaks: "TestDispatcher_LostNotifications/busy", with: "1, read_all and 1 or 0, now_us, changes,", without: "1, read_all and 1 or 0, now_us, 0,"},
	{name: "changes are numbered", breaks: "TestDispatcher_LostNotifications", with: "int(call('INCR', hg('changes')))", without: "'0'"},
	{name: "granted jobs go to the head of their queue", breaks: "TestPromote_PassesTheBacklog", with: "call('RPUSH', pending, unpack(back))", without: "call('LPUSH', pending, unpack(back))"},
	{name: "a late job takes what is reserved for a later one", breaks: "TestTurns_SlowQueueBesideFast", with: "if not other then return OVERDUE, true end", without: "if true then return OVERDUE, true end"},
	{name: "as many of a lane's jobs are on their way as its meters give", breaks: "TestTurns_SlowQueueBesideFast", with: "if lane.granted >= max_granted and", without: "if false and"},
	{name: "what is reserved for jobs that do not come is taken back", breaks: "TestTurns_PausedQueue", with: "call('ZRANGEBYSCORE', granted, '(0', int(now_us), 'LIMIT', 0, 100)", without: "{}"},
	{name: "put-backs outlast the estimated wait", breaks: "TestPutBack_OutlastsWait", with: "back_us = back_us + floor(back_us / 10) + 5000000", without: "back_us = math.min(back_us, 1000000)"},
	{name: "it is not known when a slot comes back", breaks: "TestMaxWait_Slots", with: "m.known = false", without: ""},
	{name: "a limit that was lost is defined again", breaks: "TestOperator/FLUSHALL_of_the_limiter", with: "1 - call('HEXISTS', hg('deleted'), ARGV[i])", without: "0"},
	{name: "a job that was denied on its last attempt is not archived", breaks: "TestDenied_ComeBackOnce", with: "redis.call('ZADD', retry, unpack(due))", without: "redis.call('ZADD', (string.gsub(retry, 'retry$', 'archived')), unpack(due))"},
	{name: "a Unique lock holds while its job waits", breaks: "TestPlainAsynqJobs_NoRetries", with: "if seconds > 0 and lock ~= false then extend_unique(hash, id, seconds) end", without: ""},
	{name: "the first crashes are forgiven", breaks: "TestCrashes/one,_on_the_last_attempt", with: ">= max_crashes then", without: ">= 0 then"},
	{name: "crashes are counted", breaks: "TestCrashes/one_more", with: "redis.call('HINCRBY', hash, 'crashes', 1)", without: ""},
	{name: "leases are extended", breaks: "TestTimeout_KeepsSlot", with: "set_held(sets, holder, held, until_us)", without: ""},
	{name: "a lease on a deleted limit is extended", breaks: "TestLease_LimitChanges", with: "if held > 0 then\n    until_us", without: "if held > 0 and lease_us then\n    until_us"},
	{name: "a holder goes by the lease that it was told last", breaks: "TestSimulation$", first: 22, with: "until_us = math.max(until_us, now_us + (lease_us or default_us))\n    set_held(sets, holder, held, until_us)\n    first_us = math.min(first_us, until_us - now_us)", without: "set_held(sets, holder, held, now_us + (lease_us or default_us))\n    first_us = 10000000"},
	{name: "nothing comes back that a meter's state has not taken", breaks: "TestSimulation$", first: 66, with: "at_us < parse_born(born) or ", without: ""},
	{name: "nothing comes back that a fixed window's state has not taken", breaks: "TestSettle_AfterReset/fixed_window", with: "mark < born_us then", without: "false then"},
	{name: "nothing comes back that a sliding window's state has not taken", breaks: "TestSettle_AfterReset/sliding_window", with: "or at_us < born_us then", without: "then"},
	{name: "a late acquire takes nothing", breaks: "TestSimulation$", first: 265, with: "if is_overtaken(cache, call_number) then", without: "if false then"},
	{name: "a late script of a caller does nothing", breaks: "TestSimulation$", first: 149, with: "(string.match(last, '^%d+') or 0) + 0 < call_number + 0", without: "string.match(last, '^%d+') ~= call_number"},
	{name: "a dequeue whose reply was lost finds its jobs", breaks: "TestPrefetch_LostReply/1_lost/miniredis", with: "if taken_by == name then msgs[id] = { msg, denied } end", without: ""},
	{name: "a dequeue finds none but its own", breaks: "TestPrefetch_LostReply/1_lost/miniredis", with: "if taken_by == name then msgs[id] = { msg, denied } end", without: "msgs[id] = { msg, false }"},
	{name: "jobs that did not start keep their order", breaks: "TestPrefetch_GivesBack/Stop$", with: "table.insert(given, 1, id)", without: "given[#given + 1] = id"},
	{name: "only the call's own jobs are given back", breaks: "TestPrefetch_JobsChangedMeanwhile/miniredis", with: "if is_active then", without: "if true then"},
	{name: "a Unique lock goes on when its job is granted, or run by hand", breaks: "TestUnique_EndsInTime", with: "if lock_ms then restore_unique(hash, id, lock_ms) end", without: ""},
	{name: "a retry keeps its position", breaks: "TestRetryPosition$", with: "if r or job.queued_at_us > 0 then", without: "if r then"},
	{name: "the MaxWait of a retry begins again", breaks: "TestRetryPosition_WaitsAgain", with: "  if job.rule_max_wait_us < 0 then return end", without: "  if true then return end"},
	{name: "jobs that follow one that waits wait, too", breaks: "TestTurns_QueueWeights", with: "call('HSET', hg('jobs'), unpack(records))", without: ""},
	{name: "no job is archived for an estimate", breaks: "TestMaxWait_Settle", with: "  call('HSET', hg('jobs'), job.name, text", without: "  local early = denial(job, ahead, not r)\n  if early[9] == 1 and deadline < early[4] then early[1] = EXPIRED return early end\n  call('HSET', hg('jobs'), job.name, text"},
	{name: "a job that outlives its Timeout leaves the record of its next attempt", breaks: "TestRateLimited_AfterTimeout", with: "if r and (r.ticket ~= ticket or r.lane ~= lane) then", without: "if false then"},
	{name: "a job that alone is refused waits behind all others", breaks: "TestRefusals/429", with: "(is_one_of_many and HEAD or TAIL)", without: "HEAD"},
	{name: "several refused jobs wait at the head", breaks: "TestRateLimited$", with: "(is_one_of_many and HEAD or TAIL)", without: "TAIL"},
	{name: "a job that was not refused tries for several", breaks: "TestRefusals/three", with: "if is_own or is_one_of_many then", without: "if is_own then"},
	{name: "a job that was not refused tries after one that is refused for its own sake", breaks: "TestRefusals/three", with: "if is_own or is_one_of_many then", without: "if is_one_of_many then"},
	{name: "a served call tells who is refused", breaks: "TestRefusals/429", with: "  note_served(name .. '|' .. key)", without: ""},
	{name: "a job that is refused for its own sake fails", breaks: "TestRefusals/429", with: "if is_own and may_fail then", without: "if false then"},
	{name: "a job learns that its MaxWait is over", breaks: "TestMaxWait_Expires/many", with: "call('ZADD', hg('deadlines'), int(deadline), job.name)", without: ""},
}

// noLanes makes a reconciliation find no lanes.
func noLanes(cmd redis.Cmder) bool {
	lanes, ok := cmd.(*redis.StringSliceCmd)
	if !ok || !isCommand(cmd, "zrange", "hg:{default}:lanes") {
		return false
	}
	lanes.SetVal(nil)
	return true
}

// allKnown makes the limiter know all jobs that it is asked about.
func allKnown(cmd redis.Cmder) bool {
	records, ok := cmd.(*redis.SliceCmd)
	if !ok || !isCommand(cmd, "hmget", "hg:{default}:jobs") {
		return false
	}
	records.SetVal(make([]any, len(cmd.Args())-2))
	for i := range records.Val() {
		records.Val()[i] = "known"
	}
	return true
}

// promoteOnce skips all promotions of a job except the first.
func promoteOnce() func(cmd redis.Cmder) bool {
	var mu sync.Mutex
	promoted := map[string]bool{}
	return func(cmd redis.Cmder) bool {
		mu.Lock()
		defer mu.Unlock()
		script, ok := cmd.(*redis.Cmd)
		args := cmd.Args()
		if !ok || !strings.HasPrefix(cmd.Name(), "eval") || len(args) < 9 || args[2] != 3 || !strings.HasSuffix(fmt.Sprint(args[4]), ":retry") || !strings.HasSuffix(fmt.Sprint(args[3]), ":pending") {
			return false
		}
		var states []any
		known := true
		for _, id := range args[8:] {
			states = append(states, "moved")
			known = known && promoted[fmt.Sprint(id)]
			promoted[fmt.Sprint(id)] = true
		}
		if known {
			script.SetVal(states)
		}
		return known
	}
}

func isCommand(cmd redis.Cmder, name, key string) bool {
	return cmd.Name() == name && len(cmd.Args()) > 1 && cmd.Args()[1] == key
}

func (p *piece) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if p.instead != nil && p.instead(cmd) {
		p.once.Do(p.report)
		return nil
	}
	if p.with == "" {
		return next(ctx, cmd)
	}
	text, changed := "", false
	switch args := cmd.Args(); cmd.Name() {
	case "eval":
		text, _ = args[1].(string)
		if changed = strings.Contains(text, p.with); changed {
			p.texts.Store(redis.NewScript(text).Hash(), text)
		}
	case "evalsha": // as eval, because a call that is sent twice counts as a repeat
		var known any
		if known, changed = p.texts.Load(args[1]); changed {
			text, args[0] = known.(string), "eval"
		}
	}
	if !changed {
		return next(ctx, cmd)
	}
	p.once.Do(p.report)
	cmd.Args()[1] = strings.ReplaceAll(text, p.with, p.without)
	err := next(ctx, cmd)
	if breaksOff.MatchString(fmt.Sprint(err)) {
		panic(fmt.Sprintf("without %q the script breaks off: %v", p.name, err))
	}
	return err
}

// report prints that the piece was taken out of something.
func (p *piece) report() { fmt.Println(takenOut) }

const takenOut = "a piece is taken out"

// breaksOff finds the errors of Redis and miniredis for a script that breaks off.
var breaksOff = regexp.MustCompile(`(?i)compiling|running script|user_script|attempt to `)

// withoutEnv names a piece that is to be taken out in this process.
const withoutEnv = "HEADGATE_WITHOUT"

// takeOut takes the piece out that the environment names, if any, between a process and its Redis.
// When the test has failed, the process ends with the next command, because one failure is enough.
func takeOut(t testing.TB, clients ...redis.UniversalClient) {
	for _, p := range pieces {
		if p.name != os.Getenv(withoutEnv) {
			continue
		}
		for _, rdb := range slices.Compact(clients) {
			rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if t.Failed() {
					os.Exit(1)
				}
				return p.around(ctx, cmd, next)
			}))
		}
	}
}

// TestEveryPieceIsNeeded takes out one piece after the other of what the dispatcher and the scripts
// do, and runs a test or random worlds without it, which must fail.
func TestEveryPieceIsNeeded(t *testing.T) {
	if os.Getenv(withoutEnv) != "" {
		t.Fatal("a piece is taken out: this test would run itself")
	}
	for _, p := range pieces {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			run := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.failfast", "-test.run", p.breaks, "-first", strconv.Itoa(p.first), "-seeds", "60")
			run.Env = append(os.Environ(), withoutEnv+"="+p.name, "GOMAXPROCS=1") // as others run beside it
			out, err := run.CombinedOutput()
			_, failed := errors.AsType[*exec.ExitError](err)
			if !failed || strings.Contains(string(out), "panic: ") || strings.Contains(string(out), "fatal error: ") {
				t.Fatalf("without it nothing breaks: %v\n%s", err, out)
			}
			if !strings.Contains(string(out), takenOut) {
				t.Fatalf("it was not taken out of anything, but %s fails:\n%s", p.breaks, out)
			}
			t.Logf("without it:\n%s", failure.FindString(string(out)))
		})
	}
}

// failure finds what a test says when it fails.
var failure = regexp.MustCompile(`\w+_test\.go:\d+: .*`)
