package script

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKeys_Listed: the table in docs/design.md lists the keys that scripts and Go use, and no other,
// with the types of keyTypes.
func TestKeys_Listed(t *testing.T) {
	listed, used := map[string]bool{}, map[string]bool{}
	find := func(into map[string]bool, pattern, text string) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			into[match[1]] = true
		}
	}
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	find(listed, "`hg:\\{scope\\}:(\\w+)", string(text))
	for _, row := range regexp.MustCompile("(?m)^\\| `hg:\\{scope\\}:(\\w+:?).*?` \\| ([\\w ]+) \\|").FindAllStringSubmatch(string(text), -1) {
		if want := typeOf(row[1]); want != row[2] && row[1] != "m:" && row[2] != "channel" {
			t.Errorf("docs/design.md: %s is a %s, want %s", row[1], row[2], want)
		}
	}
	for _, name := range commandFiles(t) {
		find(used, `hg\('(\w+)'`, expanded(name))
	}
	for _, folder := range []string{"throttle", "internal/waitdb", "internal/stats", "internal/frontier", "scheduler/cron"} {
		files, err := filepath.Glob("../../" + folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				find(used, `(?:[pP]refix(?:\(\w+\))?\s*\+\s*|\.key\(|\.lock\(ctx, )"(\w+)`, string(text))
			}
		}
	}
	if diff := cmp.Diff(listed, used); diff != "" {
		t.Errorf("keys in docs/design.md (-) and in the code (+):\n%s", diff)
	}
}

// TestCode_KeyNames: only include/scope.lua builds names of keys.
func TestCode_KeyNames(t *testing.T) {
	for _, name := range allFiles(t) {
		if name != "include/scope" && regexp.MustCompile(`\bP\b`).MatchString(read(t, name+".lua").code) {
			t.Errorf("%s makes a key of its own: use hg()", name)
		}
	}
}
