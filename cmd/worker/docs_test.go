package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	shownCommand = regexp.MustCompile("(?:`|(?m:^))worker ((?:-|[a-z]+)[^`\\n#]*)")
	subcommand   = regexp.MustCompile(`^[a-z]+$`)
)

// TestDocs_Commands_Exist: with the flags that pages show of them.
func TestDocs_Commands_Exist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range append(pages, "../../README.md", "../../SECURITY.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		code := regexp.MustCompile("(?ms)^```(?:sh)?\n.*?^```|`[^`\n]+`").FindAllString(string(text), -1)
		for _, match := range shownCommand.FindAllStringSubmatch(strings.Join(code, "\n"), -1) {
			checkCommand(t, filepath.Base(page), match[1])
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
