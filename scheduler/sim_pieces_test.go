package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// piece is something that the loop or a script does, and how to take it out where
// the processes meet Redis.
type piece struct {
	name string
	// first is a seed from which on some world breaks soon without it.
	first uint64
	// In a script's text, with stands for what it is, without for what it is not.
	with, without string
	// instead answers a command in Redis's place.
	instead func(cmd redis.Cmder) bool

	taken atomic.Bool // out, at least once
}

var pieces = []*piece{
	{name: "strays are sent back to ask", instead: func(cmd redis.Cmder) bool {
		known, ok := cmd.(*redis.SliceCmd)
		if !ok || !isCommand(cmd, "hmget", "hg:{default}:jobs") {
			return false
		}
		known.SetVal(known.Args()[2:])
		return true
	}},
	{name: "tickets of jobs that are gone are forgotten", instead: func(cmd redis.Cmder) bool {
		tickets, ok := cmd.(*redis.ScanCmd)
		if !ok || !isCommand(cmd, "hscan", "hg:{default}:jobs") {
			return false
		}
		tickets.SetVal(nil, 0)
		return true
	}},
	{name: "put-backs that are about to end are moved on", instead: func(cmd redis.Cmder) bool {
		_, ok := cmd.(*redis.ZSliceCmd)
		return ok && strings.HasPrefix(fmt.Sprint(cmd.Args()[3]), "(")
	}},
	{name: "a called job is told again", instead: tellOnce()},
	{name: "a called job that a worker took and that does not ask is shelved", with: "call('ZADD', called, '-1', id)", without: ""},
	{name: "who takes over reads the lanes", with: "if not holder then seen = '-1' end", without: "if not holder then seen = int(FAR) end"},
	{name: "lost words are noticed by the number of changes", with: "now_us, tonumber(call('GET', hg('changes')) or 0)", without: "now_us, 0"},
	{name: "called jobs go to the head of their queue", with: "redis.call('RPUSH', pending, line[i])", without: "redis.call('LPUSH', pending, line[i])"},
	{name: "called jobs keep their order", with: "for i = #(line or {}), 1, -1 do", without: "for i = 1, #(line or {}) do"},
	{name: "newcomers take nothing where a lane waits", with: "return not job.mark and job.before == 0", without: "return true"},
	{name: "an uncalled job does not pass those before it", with: "if r then return call('ZRANK', job.waiting, job.id) == 0 and call('EXISTS', hg('turns')) == 0 end", without: ""},
	{name: "newcomers leave what is reserved", with: "if called ~= RESERVED then load_reserved(meters) end", without: ""},
	{name: "a late job takes a later one's permits", with: "if not other then return OVERDUE, true end", without: "if true then return OVERDUE, true end"},
	{name: "turns leave what is held", with: "meters[i].reserved + held[i] + meters[i].cost", without: "meters[i].reserved + meters[i].cost"},
	{name: "turns leave what is reserved", with: "m.reserved, m.promised = m.reserved + m.cost, m.promised + m.cost", without: ""},
	{name: "a lane's called jobs are bounded", with: "if line.called - line.shelved >= most_called(meters) then", without: "if false then"},
	{name: "only what will surely be there is called ahead", with: "if #meters > 1 or not m.known", without: "if false and not m.known"},
	{name: "after a refusal its meters are left alone", with: "meters[i].refused = true", without: ""},
	{name: "what is freed is said", with: "if waited_for(id) then changed('meter', id) end", without: ""},
	{name: "a called job that comes is said", with: "if call('SREM', hg('full'), lane) == 1 or late then", without: "if false then"},
	{name: "what a late job does not take is taken back", with: "call('ZADD', called, 0, late[i])", without: ""},
	{name: "a new lane is said", with: "call('PUBLISH', hg('wake'), 'lane ' .. number)", without: ""},
	{name: "a call that is repeated is charged once", with: "== number then return take_all(meters, true) end", without: "== number then end"},
	{name: "where nobody waits marks are taken back", with: "call('HDEL', hg('contended'), id)", without: ""},
	{name: "marks outlive the turn-giver", with: "call('PEXPIRE', hg('contended'), MARKS_MS)", without: ""},
	{name: "waiting jobs are estimated with all lanes", with: "local turns = place * lanes", without: "local turns = place"},
}

// tellOnce takes all promotes of a job for done but the first.
func tellOnce() func(cmd redis.Cmder) bool {
	told := map[string]bool{}
	return func(cmd redis.Cmder) bool {
		script, ok := cmd.(*redis.Cmd)
		args := cmd.Args()
		if !ok || !strings.HasPrefix(cmd.Name(), "eval") || len(args) < 8 || args[2] != 2 || !strings.HasSuffix(fmt.Sprint(args[4]), ":retry") || !strings.HasSuffix(fmt.Sprint(args[3]), ":pending") {
			return false
		}
		var fates []any
		known := true
		for _, id := range args[7:] {
			fates = append(fates, "moved")
			known = known && told[fmt.Sprint(id)]
			told[fmt.Sprint(id)] = true
		}
		if known {
			script.SetVal(fates)
		}
		return known
	}
}

func isCommand(cmd redis.Cmder, name, key string) bool {
	return cmd.Name() == name && len(cmd.Args()) > 1 && cmd.Args()[1] == key
}

func (p *piece) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *piece) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (p *piece) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p.instead != nil && p.instead(cmd) {
			p.taken.Store(true)
			return nil
		}
		// Redis never gets to know a script as it is, so each call is repeated with
		// the text.
		if cmd.Name() == "eval" && p.with != "" {
			if text, ok := cmd.Args()[1].(string); ok && strings.Contains(text, p.with) {
				cmd.Args()[1] = strings.ReplaceAll(text, p.with, p.without)
				p.taken.Store(true)
			}
		}
		return next(ctx, cmd)
	}
}

// TestEveryPieceIsNeeded takes out one piece after the other of what the loop and
// the scripts do: each time some world must break a promise.
func TestEveryPieceIsNeeded(t *testing.T) {
	for _, p := range pieces {
		t.Run(p.name, func(t *testing.T) {
			for seed := p.first; seed < p.first+40; seed++ {
				var broken []string
				synctest.Test(t, func(t *testing.T) {
					w := newSim(t, seed, p)
					w.play()
					w.judge()
					broken = w.broken
				})
				if len(broken) > 0 {
					t.Logf("without it, seed %d: %s", seed, broken[0])
					if !p.taken.Load() {
						t.Error("it was not taken out")
					}
					return
				}
			}
			t.Error("without it nothing breaks")
		})
	}
}
