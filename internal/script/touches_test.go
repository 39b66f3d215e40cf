package script

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The commands that scripts use: those that only read, and those that write.
const (
	readers = "EXISTS GET HEXISTS HGET HGETALL HLEN HMGET HVALS LINDEX LLEN LRANGE MGET PTTL SISMEMBER SMEMBERS ZCARD ZCOUNT ZRANGE ZRANGEBYSCORE ZRANK ZSCORE"
	writers = "DEL HDEL HINCRBY HSET HSETNX INCR LPUSH LREM LTRIM EXPIRE PERSIST PEXPIRE PUBLISH RENAME RPOP RPUSH SADD SET SREM UNLINK XADD ZADD ZINCRBY ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE"
)

var (
	designKey = regexp.MustCompile("`hg:\\{scope\\}:(\\w+)")
	touches   = regexp.MustCompile(`(?s)-- Touches: ([^.]*)\.\n`)
	touched   = regexp.MustCompile(`(\w+) \((r|w|rw)\)`)
	bound     = regexp.MustCompile(`(?m)^ *(?:local )?([\w, ]+) = (hg\('.*)$`)
	named     = regexp.MustCompile(`hg\('(\w+)'`)
	command   = regexp.MustCompile(`'([A-Z]{3,})', ?([^\n]*)`)
	counted   = regexp.MustCompile(`\bcount(?:_all)?\(hg\('(\w+)'`)
	goKey     = regexp.MustCompile(`(?:[pP]refix(?:\(\))?\s*\+\s*|\.key\()"(\w+)`)
	firstName = regexp.MustCompile(`^(?:\w+\.)?(\w+)`)
)

// layout is the names of the keys that the table in docs/design.md lists.
func layout(t *testing.T) (keys []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range designKey.FindAllSubmatch(text, -1) {
		keys = append(keys, string(match[1]))
	}
	return keys
}

// variables maps each variable of the code to the key whose name it holds. The parameters state and
// sets, and all KEYS but the first, hold keys of meters.
func variables(code string) map[string]string {
	keys := map[string]string{"state": "m", "sets": "m", "KEYS": "m"}
	for _, match := range bound.FindAllStringSubmatch(code, -1) {
		values := named.FindAllStringSubmatch(match[2], -1)
		for i, name := range strings.Split(match[1], ", ") {
			if i < len(values) {
				keys[strings.TrimSpace(name)] = values[i][1]
			}
		}
	}
	return keys
}

var function = regexp.MustCompile(`^local function (\w+)\(`)

// functions splits the code into the top-level functions, by name, and the rest.
func functions(code string) (texts map[string]string, rest string) {
	texts = map[string]string{}
	within := ""
	for line := range strings.Lines(code) {
		if start := function.FindStringSubmatch(line); start != nil {
			within = start[1]
		}
		if within == "" {
			rest += line
			continue
		}
		texts[within] += line
		if line == "end\n" || function.MatchString(line) && strings.HasSuffix(line, " end\n") {
			within = ""
		}
	}
	return texts, rest
}

// used returns the code without unused functions.
func used(code string) string {
	functions, rest := functions(code)
	for again := true; again; {
		again = false
		for name, text := range functions {
			if regexp.MustCompile(`\b` + name + `\b`).MatchString(rest) {
				rest, again = rest+text, true
				delete(functions, name)
			}
		}
	}
	return rest
}

// touchedBy returns the keys that the code reads and writes: key → r, w or rw.
func touchedBy(code string) map[string]string {
	found, variable := map[string]string{}, variables(code)
	note := func(key, how string) {
		if key != "" && !strings.Contains(found[key], how) {
			found[key] = strings.ReplaceAll(found[key]+how, "wr", "rw")
		}
	}
	for _, match := range counted.FindAllStringSubmatch(code, -1) {
		note(match[1], "w")
	}
	for line := range strings.Lines(code) {
		for match := command.FindStringSubmatch(line); match != nil; match = command.FindStringSubmatch(line) {
			line = match[2]
			how := ""
			if slices.Contains(strings.Fields(readers), match[1]) {
				how = "r"
			} else if slices.Contains(strings.Fields(writers), match[1]) {
				how = "w"
			} else {
				continue
			}
			arguments := match[2]
			if next := command.FindStringIndex(arguments); next != nil {
				arguments = arguments[:next[0]]
			}
			for _, key := range named.FindAllStringSubmatch(arguments, -1) {
				note(key[1], how)
			}
			if first := firstName.FindStringSubmatch(arguments); first != nil {
				note(variable[first[1]], how)
			}
		}
	}
	return found
}

// TestHeader_Keys compares the line "Touches: key (r), key (rw)." of each header with the keys that
// the script and its includes use.
func TestHeader_Keys(t *testing.T) {
	known := layout(t)
	commands(t, func(t *testing.T, name string, s source) {
		if !strings.Contains(s.code, "hg(") && strings.Contains(s.header, "asynq") {
			return // asynq's own keys are its arguments
		}
		does := touchedBy(used(comment.ReplaceAllString(expanded(name), "")))
		if len(does) == 0 {
			t.Error("it touches no key of the scope")
		}
		said := map[string]string{}
		if line := touches.FindStringSubmatch(s.header); line != nil {
			for _, match := range touched.FindAllStringSubmatch(line[1], -1) {
				said[match[1]] = match[2]
			}
		}
		if diff := cmp.Diff(said, does); diff != "" {
			var right []string
			for _, key := range slices.Sorted(maps.Keys(does)) {
				right = append(right, fmt.Sprintf("%s (%s)", key, does[key]))
			}
			t.Errorf("the header says (-) and the code touches (+)\n%s\n-- Touches: %s.", diff, strings.Join(right, ", "))
		}
		for key := range does {
			if !slices.Contains(known, key) {
				t.Errorf("the table in docs/design.md does not list the key %s", key)
			}
		}
	})
}

// TestCode_KeyNames: only include/scope.lua builds names of keys.
func TestCode_KeyNames(t *testing.T) {
	for _, name := range allFiles(t) {
		if name != "include/scope" && regexp.MustCompile(`\bP\b`).MatchString(read(t, name+".lua").code) {
			t.Errorf("%s makes a key of its own: use hg()", name)
		}
	}
}

// keysOfGo returns the keys that Go uses without a script: key → a file that names it.
func keysOfGo(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, of := range []string{"throttle", "internal/waitdb", "internal/stats", "internal/frontier", "scheduler/cron"} {
		files, err := filepath.Glob("../../" + of + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range goKey.FindAllSubmatch(text, -1) {
				if !strings.HasSuffix(file, "_test.go") {
					found[string(match[1])] = file
				}
			}
		}
	}
	return found
}

// TestKeys_ListedInGo: the table in docs/design.md lists the keys that Go uses without a script.
func TestKeys_ListedInGo(t *testing.T) {
	known, found := layout(t), keysOfGo(t)
	for key, file := range found {
		if !slices.Contains(known, key) {
			t.Errorf("%s uses a key %s, which the table in docs/design.md does not list", file, key)
		}
	}
	if len(found) < 15 {
		t.Errorf("%d keys found: this test's pattern does not match Go's code any more", len(found))
	}
}

// TestKeys_Used: the table in docs/design.md lists no unused key.
func TestKeys_Used(t *testing.T) {
	used := map[string]bool{}
	for _, name := range commandFiles(t) {
		for _, key := range named.FindAllStringSubmatch(expanded(name), -1) {
			used[key[1]] = true
		}
	}
	for key := range keysOfGo(t) {
		used[key] = true
	}
	for _, key := range layout(t) {
		if !used[key] {
			t.Errorf("the table in docs/design.md has `hg:{scope}:%s`, which nothing uses", key)
		}
	}
}
