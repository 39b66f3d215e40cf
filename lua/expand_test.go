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
	"accepted":    Accepted,
	"acquire":     Acquire,
	"allow":       Allow,
	"block":       Block,
	"block_for":   BlockFor,
	"carry":       Carry,
	"cell":        Cell,
	"charge":      Charge,
	"claim":       Claim,
	"crash":       Crash,
	"crawl_claim": CrawlClaim,
	"crawl_done":  CrawlDone,
	"crawl_found": CrawlFound,
	"cron_move":   CronMove,
	"cron_read":   CronRead,
	"define":      Define,
	"delete":      Delete,
	"dequeue":     Dequeue,
	"edges":       Edges,
	"extend":      Extend,
	"fields":      Fields,
	"identify":    Identify,
	"file_keys":   FileKeys,
	"forecast":    Forecast,
	"forget":      Forget,
	"free":        Free,
	"give_back":   GiveBack,
	"grant":       Grant,
	"late":        Late,
	"lead":        Lead,
	"look":        Look,
	"mend":        Mend,
	"note":        Note,
	"pause":       Pause,
	"plain":       Plain,
	"postpone":    Postpone,
	"promote":     Promote,
	"put_back":    PutBack,
	"recall":      Recall,
	"record":      Record,
	"recount":     Recount,
	"refused":     Refused,
	"reset":       Reset,
	"resign":      Resign,
	"set_key":     SetKey,
	"settle":      Settle,
	"shelve":      Shelve,
	"unset_key":   UnsetKey,
	"waiting":     Waiting,
}

// expanded is the text of a command's script as Redis gets it.
func expanded(command string) string { return expand(command+".lua", map[string]bool{}) }

// names lists what a pattern matches in the folder, without folder and ending.
func names(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(path), ".lua")
	}
	return paths
}

func TestEveryFileIsACommand(t *testing.T) {
	files := names(t, "*.lua")
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

// TestPrint prints a script as Redis gets it: go test ./lua -run TestPrint -v -print acquire.
func TestPrint(t *testing.T) {
	if *printed == "" {
		return
	}
	if scripts[*printed] == nil {
		t.Fatalf("there is no command %q", *printed)
	}
	t.Log("\n" + expanded(*printed))
}
