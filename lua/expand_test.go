package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

var printed = flag.String("print", "", "the command whose script TestPrint prints")

// scripts is every command's script by the name of its file.
var scripts = map[string]*redis.Script{
	"limits/accepted":      Accepted,
	"lanes/acquire":        Acquire,
	"history/alive":        Alive,
	"limits/allow":         Allow,
	"limits/block":         Block,
	"limits/block_for":     BlockFor,
	"limits/carry":         Carry,
	"limits/cell":          Cell,
	"limits/charge":        Charge,
	"lanes/claim":          Claim,
	"asynq/attempt":        Attempt,
	"asynq/crash":          Crash,
	"limits/course":        Course,
	"crawl/claim":          CrawlClaim,
	"crawl/done":           CrawlDone,
	"crawl/found":          CrawlFound,
	"cron/move":            CronMove,
	"cron/read":            CronRead,
	"limits/define":        Define,
	"limits/delete":        Delete,
	"asynq/dequeue":        Dequeue,
	"limits/edges":         Edges,
	"limits/extend":        Extend,
	"asynq/fields":         Fields,
	"asynq/identify":       Identify,
	"limits/file_keys":     FileKeys,
	"lanes/forget":         Forget,
	"limits/free":          Free,
	"asynq/give_back":      GiveBack,
	"lanes/grant":          Grant,
	"lanes/late":           Late,
	"lanes/lead":           Lead,
	"limits/look":          Look,
	"lanes/mend":           Mend,
	"limits/note":          Note,
	"limits/pause":         Pause,
	"limits/plain":         Plain,
	"asynq/postpone":       Postpone,
	"asynq/promote":        Promote,
	"asynq/put_back":       PutBack,
	"lanes/queued":         Queued,
	"lanes/expire":         Expire,
	"history/record":       Record,
	"lanes/recount":        Recount,
	"lanes/refused":        Refused,
	"limits/reset":         Reset,
	"lanes/resign":         Resign,
	"limits/set_key":       SetKey,
	"lanes/publish_shares": PublishShares,
	"lanes/presume_dead":   PresumeDead,
	"lanes/waiting":        Waiting,
}

// expanded is the text of a command's script as Redis gets it.
func expanded(command string) string { return expand(command+".lua", map[string]bool{}) }

// commandFiles and includeFiles are the files in this folder, without their ending.
func commandFiles(t *testing.T) []string {
	return slices.DeleteFunc(paths(t, "*/*.lua"), func(path string) bool { return strings.HasPrefix(path, "include/") })
}

func includeFiles(t *testing.T) []string {
	return append(paths(t, "include/*.lua"), paths(t, "*/include/*.lua")...)
}

func allFiles(t *testing.T) []string { return append(commandFiles(t), includeFiles(t)...) }

func paths(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	for i, path := range found {
		found[i] = strings.TrimSuffix(path, ".lua")
	}
	return found
}

func TestEveryFileIsACommand(t *testing.T) {
	files := commandFiles(t)
	for _, name := range files {
		script := scripts[name]
		if script == nil {
			t.Errorf("%s.lua has no script in the table of this test", name)
			continue
		}
		if sum := sha1.Sum([]byte(expanded(name))); script.Hash() != hex.EncodeToString(sum[:]) {
			t.Errorf("the variable for %s.lua holds another script", name)
		}
	}
	for name := range scripts {
		if !slices.Contains(files, name) {
			t.Errorf("there is no %s.lua", name)
		}
	}
}

// TestPrint prints a script as Redis gets it: go test ./lua -run TestPrint -v -print lanes/acquire.
func TestPrint(t *testing.T) {
	if *printed == "" {
		return
	}
	if scripts[*printed] == nil {
		t.Fatalf("there is no command %q", *printed)
	}
	t.Log("\n" + expanded(*printed))
}
