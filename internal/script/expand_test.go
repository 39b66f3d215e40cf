package script

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// expanded returns the text of a script that Redis receives.
func expanded(command string) string { return expand(command+".lua", map[string]bool{}) }

// folder is where the scripts are.
const folder = "../../lua/"

// commandFiles and includeFiles are the files in folder, without their ending.
func commandFiles(t *testing.T) []string {
	return slices.DeleteFunc(paths(t, "*/*.lua"), func(path string) bool { return strings.HasPrefix(path, "include/") })
}

func includeFiles(t *testing.T) []string {
	return append(paths(t, "include/*.lua"), paths(t, "*/include/*.lua")...)
}

func allFiles(t *testing.T) []string { return append(commandFiles(t), includeFiles(t)...) }

func paths(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(folder + pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	for i, path := range found {
		found[i] = strings.TrimPrefix(strings.TrimSuffix(path, ".lua"), folder)
	}
	return found
}

var newScript = regexp.MustCompile(`script\.New\("([^"]+)"\)`)

// TestFiles_Run: exactly one package runs each script.
func TestFiles_Run(t *testing.T) {
	runs := map[string]string{} // by script
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/bench/") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range newScript.FindAllSubmatch(text, -1) {
			if other := runs[string(match[1])]; other != "" {
				t.Errorf("%s runs %s.lua, as %s does", path, match[1], other)
			}
			runs[string(match[1])] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	files := commandFiles(t)
	for _, name := range files {
		if runs[name] == "" {
			t.Errorf("no package runs %s.lua", name)
		}
	}
	for name, path := range runs {
		if !slices.Contains(files, name) {
			t.Errorf("%s: there is no %s.lua", path, name)
		}
	}
}
