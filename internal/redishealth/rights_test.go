package redishealth

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestRightsHaveEachCommand: each command of a script is tried.
func TestRightsHaveEachCommand(t *testing.T) {
	files, err := filepath.Glob("../../lua/*/*.lua")
	more, _ := filepath.Glob("../../lua/*/include/*.lua")
	files = append(files, more...)
	if err != nil || len(files) < 50 {
		t.Fatalf("%d scripts, %v", len(files), err)
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
			if known[0] != nil && !strings.Contains(commandsOfScripts, "\n"+strings.ToLower(word[1])) {
				t.Errorf("%s calls %s, whose right is not tried", file, word[1])
			}
		}
	}
}
