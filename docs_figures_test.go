package headgate_test

import (
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

var update = flag.Bool("update", false, "copy the tables of docs/benchmarks.md to the pages that show them")

// figures are the tables of docs/benchmarks.md.
var (
	figures = regexp.MustCompile(`(?m)^<!-- figures: (.+) -->\n((?:\|.*\n)+)`)
	copied  = regexp.MustCompile(`(?m)^<!-- figures of benchmarks.md: (.+) -->\n((?:\|.*\n)*)`)
)

// TestFigures compares copies of the tables. go test . -run TestFigures -update updates them.
func TestFigures(t *testing.T) {
	tables := map[string]string{}
	for _, match := range figures.FindAllStringSubmatch(proctest.ReadFile(t, "docs/benchmarks.md"), -1) {
		tables[match[1]] = match[2]
	}
	copies := 0
	for _, path := range documents(t) {
		old := proctest.ReadFile(t, path)
		text := copied.ReplaceAllStringFunc(old, func(part string) string {
			copies++
			name := copied.FindStringSubmatch(part)[1]
			if tables[name] == "" {
				t.Errorf("%s shows figures of %q, which docs/benchmarks.md does not have", path, name)
			}
			return "<!-- figures of benchmarks.md: " + name + " -->\n" + tables[name]
		})
		switch {
		case text == old:
		case *update:
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s has other figures than docs/benchmarks.md: run go test . -run TestFigures -update", path)
		}
	}
	if copies == 0 {
		t.Error("no page shows figures of docs/benchmarks.md")
	}
}
