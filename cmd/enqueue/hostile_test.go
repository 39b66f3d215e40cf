package main

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/cli/clitest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/tasks"
)

// The command prints no control characters of jobs and arguments.
func TestHostileJobs(t *testing.T) {
	server := redistest.Run(t)
	const evil = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202egpj.exe\r\x7f"
	long := strings.Repeat("A", 1<<20)
	lines := strings.Join([]string{
		fmt.Sprintf(`{"type": "mine", "id": %q}`, "a\u009b31m\u202e"),
		`{"type": "mine", "id": "b\u001b[2J\u0007"}`,
		`{"type": "mine", "id": "b\u001b[2J\u0007"}`, // twice
		`{"type": "mine\u001b[2J", "queue": "\u001b[2J"}`,
		`{"type": "mine", "` + evil + `": 1}`,
		`{"type": "mine", "payload": "` + evil + `"}`,
		`{"type": "` + evil + long + `"`,
		"\xff\xfe" + evil + long,
	}, "\n")
	for _, args := range [][]string{
		{"-"},
		{"-", "--json"},
		{"-", "--strict"},
		{"-", "--plan"},
		{"--type", "mine", "--id", "c\u009b31m\u202e"},
		{"--type", "mine", "--id", "d\u009b31m\u202e", "--json"},
		{"--type", evil, "--payload", evil},
		{"--type", "mine", "--in", evil},
		{"--type", "mine", "--queue", evil},
		{evil},
		{"--" + evil},
		{"crawl", "https://" + evil + "/"},
		{"crawl", "https://example.com/", "--name", evil},
		{"crawl", "https://example.com/", "--allow", evil},
	} {
		var out bytes.Buffer
		execute(t.Context(), append(args, "--redis", server.URL()), cli.IO{In: strings.NewReader(lines), Out: &out, Err: &out})
		shown := out.String()
		bad := func(r rune) bool { return r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0x202e }
		if i := strings.IndexFunc(shown, bad); i >= 0 || !utf8.ValidString(shown) {
			t.Errorf("%.60q shows %.60q", args, shown[max(0, i-20):])
		}
		if len(shown) == 0 || len(shown) > 20_000 {
			t.Errorf("%.60q prints %d bytes", args, len(shown))
		}
	}
}

// The help has each field of a payload, and no other.
func TestPayloadFields(t *testing.T) {
	check := func(help string, payload reflect.Type) {
		t.Helper()
		var want []string
		for _, f := range reflect.VisibleFields(payload) {
			if name := regexp.MustCompile("^[a-z_]+").FindString(f.Tag.Get("json")); name != "" {
				want = append(want, name)
			}
		}
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^  ([a-z_]+)  `).FindAllStringSubmatch(help, -1) {
			got = append(got, m[1])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the help has\n%v, the payload\n%v", got, want)
		}
	}
	check(requestFields, reflect.TypeFor[tasks.HTTPRequest]())
	check(crawlFields, reflect.TypeFor[tasks.CrawlFetch]())
}

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"enqueue": main})
}

func TestScripts(t *testing.T) { clitest.Run(t, execute, "../worker") }
