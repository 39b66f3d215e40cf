package headgate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

// documents are the pages of the root and of docs.
func documents(t *testing.T) []string {
	t.Helper()
	return files(t, func(path string) bool {
		dir := filepath.Dir(path)
		return strings.HasSuffix(path, ".md") && (dir == "." || dir == "docs")
	})
}

func TestREADME_Start(t *testing.T) {
	text := proctest.ReadFile(t, "README.md")
	for _, command := range []string{"go run ./cmd/worker demo", "make test"} {
		if !strings.Contains(text, command) {
			t.Errorf("README.md does not show %q", command)
		}
	}
	if lines := strings.Count(text, "\n"); lines > 150 {
		t.Errorf("README.md has %d lines, want 150 at most: there are pages in docs", lines)
	}
}

var goRun = regexp.MustCompile(`go run (?:-\S+ )*\./([\w./-]*\w)`)

func TestDocs_GoRunPaths(t *testing.T) {
	for _, path := range append(documents(t), "Makefile") {
		for _, match := range goRun.FindAllStringSubmatch(proctest.ReadFile(t, path), -1) {
			if !isCommand(t, match[1]) {
				t.Errorf("%s: %q: there is no such command", path, match[0])
			}
		}
	}
}

var makeTarget = regexp.MustCompile("(?m)(?:^    |`)make ((?:[a-z]+ ?)+)")

func TestDocs_MakeTargets(t *testing.T) {
	makefile := proctest.ReadFile(t, "Makefile")
	for _, path := range documents(t) {
		for _, match := range makeTarget.FindAllStringSubmatch(proctest.ReadFile(t, path), -1) {
			for target := range strings.FieldsSeq(match[1]) {
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s: make has no target %s", path, target)
				}
			}
		}
	}
}

var ownPath = regexp.MustCompile("`((?:bench|cmd|dashboards|deploy|docs|examples|internal|lua|scheduler|tasks|throttle)(?:/[\\w./-]*)?)`")

func TestDocs_Paths(t *testing.T) {
	for _, path := range documents(t) {
		for _, match := range ownPath.FindAllStringSubmatch(proctest.ReadFile(t, path), -1) {
			if _, err := os.Stat(filepath.FromSlash(match[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", path, match[1])
			}
		}
	}
}

// isCommand reports whether a folder is a main package.
func isCommand(t *testing.T, dir string) bool {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.Contains("\n"+proctest.ReadFile(t, source), "\nfunc main()") {
			return true
		}
	}
	return false
}

var (
	codeBlock = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```")
	link      = regexp.MustCompile(`\]\(<?([^)>\s]+)|^\[[^\]]+\]:\s*(\S+)|(?:src|href)="([^"]+)"`)
	elsewhere = regexp.MustCompile(`^(?:[a-z][a-z0-9+.-]*:|//)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	noAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// links returns the targets of a document's relative links. Those with # are in the document itself.
func links(text string) []string {
	var targets []string
	for line := range strings.Lines(codeBlock.ReplaceAllString(text, "")) {
		for _, match := range link.FindAllStringSubmatch(line, -1) {
			target := match[1] + match[2] + match[3]
			if !elsewhere.MatchString(target) {
				targets = append(targets, target)
			}
		}
	}
	return targets
}

// anchors returns the anchors of a document's headings, as GitHub writes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		plain := noAnchor.ReplaceAllString(strings.ToLower(match[1]), "")
		found[strings.ReplaceAll(plain, " ", "-")] = true
	}
	return found
}

func TestDocs_RelativeLinks(t *testing.T) {
	for _, path := range documents(t) {
		for _, target := range links(proctest.ReadFile(t, path)) {
			name, anchor, _ := strings.Cut(target, "#")
			file := path
			if name != "" {
				file = filepath.Join(filepath.Dir(path), filepath.FromSlash(name))
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, target)
			} else if anchor != "" && !anchors(proctest.ReadFile(t, file))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", path, target)
			}
		}
	}
}
