package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

var (
	shownCommand = regexp.MustCompile("(?:`|(?m:^))(?:headgate-)?worker ((?:-|[a-z]+)[^`\\n#]*)")
	subcommand   = regexp.MustCompile(`^[a-z]+$`)
)

// TestDocs_Commands_Exist: so do the flags that documents and examples show.
func TestDocs_Commands_Exist(t *testing.T) {
	code := regexp.MustCompile("(?ms)^```(?:sh)?\n.*?^```|`[^`\n]+`|^#   [^\n]+") // comments of YAML files, too
	for _, pattern := range []string{"docs/*.md", "*.md", "examples/*/*.yaml"} {
		pages, err := filepath.Glob("../../" + pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, page := range pages {
			text := proctest.ReadFile(t, page)
			shown := strings.Join(code.FindAllString(text, -1), "\n")
			shown = regexp.MustCompile(`(?m)^(#   |go run \./cmd/)`).ReplaceAllString(shown, "")
			for _, match := range shownCommand.FindAllStringSubmatch(shown, -1) {
				checkCommand(t, page, match[1])
			}
		}
	}
}

// checkCommand asks a command that a page shows for its help.
func checkCommand(t *testing.T, page, shown string) {
	t.Helper()
	var args, flags []string
	for word := range strings.FieldsSeq(shown) {
		if strings.HasPrefix(word, "-") {
			flags = append(flags, word)
		} else if subcommand.MatchString(word) && len(flags) == 0 && len(args) < 2 {
			args = append(args, word)
		}
	}
	help := command.Run(t.Context(), append(args, "-h")...)
	if help.Code != 0 {
		t.Errorf("%s shows worker %s: %s", page, shown, help.Err)
	}
	for _, flag := range flags {
		if !regexp.MustCompile(`(?m)^ +(?:-\w, +)?` + flag + `\b`).MatchString(help.Out) {
			t.Errorf("%s shows worker %s, which has no flag %s", page, shown, flag)
		}
	}
}
