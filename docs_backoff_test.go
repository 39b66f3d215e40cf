package headgate_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

var backoff = regexp.MustCompile(`local FIRST_US, LONGEST_US = (\d+), (\d+)`)

// TestBackoffOf429s compares the docs and the help with how long the script blocks a key after a 429
// without a time.
func TestBackoffOf429s(t *testing.T) {
	found := backoff.FindStringSubmatch(proctest.ReadFile(t, "lua/lanes/include/rate_limit.lua"))
	if found == nil {
		t.Fatal("lua/lanes/include/rate_limit.lua has no FIRST_US, LONGEST_US")
	}
	first, longest := inPlainWords(t, found[1]), inPlainWords(t, found[2])
	for _, path := range []string{"docs/configuration.md", "docs/design.md", "cmd/worker/run.go"} {
		text := strings.Join(strings.Fields(proctest.ReadFile(t, path)), " ")
		said := regexp.MustCompile(`for ` + first + `,( and)? twice as long for each 429 in a row, up to ` + longest + `\b`)
		if !said.MatchString(text) {
			t.Errorf(`%s does not say "for %s, twice as long for each 429 in a row, up to %s"`, path, first, longest)
		}
	}
}

// inPlainWords formats microseconds as the docs do.
func inPlainWords(t *testing.T, us string) string {
	t.Helper()
	n, err := strconv.Atoi(us)
	if err != nil {
		t.Fatal(err)
	}
	d := time.Duration(n) * time.Microsecond
	if word := map[time.Duration]string{time.Second: "a second", time.Minute: "a minute", 5 * time.Minute: "five minutes"}[d]; word != "" {
		return word
	}
	return d.String()
}
