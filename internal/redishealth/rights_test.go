package redishealth

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestTryRights_EachCommand: TryRights tries each command that a script calls.
func TestTryRights_EachCommand(t *testing.T) {
	files, err := filepath.Glob("../../lua/*/*.lua")
	more, _ := filepath.Glob("../../lua/*/include/*.lua")
	files = append(files, more...)
	if err != nil || len(files) < 50 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	var tried []string
	for _, group := range scriptCommands {
		tried = append(tried, strings.Fields(group[1])...)
	}
	rdb := redistest.Real(t)
	for _, file := range append(files, "../../lua/include/scope.lua") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range regexp.MustCompile(`'([A-Z]{3,})'`).FindAllStringSubmatch(string(text), -1) {
			known, err := rdb.Do(t.Context(), "COMMAND", "INFO", word[1]).Slice()
			if err != nil {
				t.Fatal(err)
			}
			if known[0] != nil && !slices.Contains(tried, strings.ToLower(word[1])) {
				t.Errorf("%s calls %s, whose right is not tried", file, word[1])
			}
		}
	}
}
