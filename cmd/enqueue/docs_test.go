package main

import (
	"bytes"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/testutil/proctest"
)

// TestDocs_Flags_Exist: enqueue has each flag that documents and examples show.
func TestDocs_Flags_Exist(t *testing.T) {
	help := map[bool]string{} // by whether the command is "enqueue crawl"
	for isCrawl, args := range map[bool][]string{false: {"-h"}, true: {"crawl", "-h"}} {
		var out bytes.Buffer
		execute(t.Context(), args, cli.IO{Out: &out, Err: io.Discard})
		help[isCrawl] = out.String()
	}
	command := regexp.MustCompile("(?m)headgate-enqueue ([^`\n#|]*)")
	flag := regexp.MustCompile(`(?:^| )(--[a-z-]+)`)
	shown := 0
	for _, pattern := range []string{"docs/*.md", "README.md", "examples/*/*.yaml"} {
		pages, _ := filepath.Glob("../../" + pattern)
		for _, page := range pages {
			for _, match := range command.FindAllStringSubmatch(proctest.ReadFile(t, page), -1) {
				for _, f := range flag.FindAllStringSubmatch(match[1], -1) {
					shown++
					if !regexp.MustCompile(f[1] + `\b`).MatchString(help[strings.HasPrefix(match[1], "crawl")]) {
						t.Errorf("%s shows headgate-enqueue %s, which has no flag %s", page, match[1], f[1])
					}
				}
			}
		}
	}
	if shown == 0 {
		t.Error("no document shows a flag")
	}
}
