package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

var update = flag.Bool("update", false, "write testdata/snapshots anew")

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
	"edges":       Edges,
	"extend":      Extend,
	"fields":      Fields,
	"identify":    Identify,
	"file_keys":   FileKeys,
	"forecast":    Forecast,
	"forget":      Forget,
	"free":        Free,
	"grant":       Grant,
	"lead":        Lead,
	"look":        Look,
	"note":        Note,
	"pause":       Pause,
	"postpone":    Postpone,
	"promote":     Promote,
	"put_back":    PutBack,
	"recall":      Recall,
	"record":      Record,
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

// kept are the scripts that hold most includes.
var kept = []string{"acquire", "allow", "grant"}

// TestSnapshots shows in review what a change of an include changes: some whole
// scripts are kept, and must be what Redis gets. After a change that is meant,
// run go test ./lua -update.
func TestSnapshots(t *testing.T) {
	if *update {
		writeSnapshots(t)
	}
	for _, name := range kept {
		want, err := os.ReadFile(snapshot(name))
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(expanded(name), "\n")); diff != "" {
			t.Errorf("%s is not its snapshot; if the change is meant: go test ./lua -update\n%s", name, diff)
		}
	}
	for _, name := range names(t, snapshot("*")) {
		if !slices.Contains(kept, name) {
			t.Errorf("%s is not to be kept", snapshot(name))
		}
	}
}

func snapshot(name string) string { return filepath.Join("testdata", "snapshots", name+".lua") }

func writeSnapshots(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(snapshot("")), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range kept {
		if err := os.WriteFile(snapshot(name), []byte(expanded(name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
