package lua

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var printed = flag.String("print", "", "the command whose script TestPrint prints")

// scripts is every command's script by the name of its file.
var scripts = func() map[string]*Script {
	all := map[string]*Script{}
	for _, s := range bySHA {
		all[s.name] = s
	}
	return all
}()

// expanded is the text of a command's script as Redis gets it.
func expanded(command string) string { return expand(command+".lua", map[string]bool{}) }

// commandFiles and includeFiles are the files in this folder, without their ending.
func commandFiles(t *testing.T) []string {
	return slices.DeleteFunc(paths(t, "*/*.lua"), func(path string) bool { return strings.HasPrefix(path, "include/") })
}

func includeFiles(t *testing.T) []string {
	return append(paths(t, "include/*.lua"), paths(t, "*/include/*.lua")...)
}

func allFiles(t *testing.T) []string { return append(commandFiles(t), includeFiles(t)...) }

func paths(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	for i, path := range found {
		found[i] = strings.TrimSuffix(path, ".lua")
	}
	return found
}

func TestEveryFileIsACommand(t *testing.T) {
	files := commandFiles(t)
	for _, name := range files {
		if scripts[name] == nil {
			t.Errorf("no variable holds %s.lua", name)
		}
	}
	for name := range scripts {
		if !slices.Contains(files, name) {
			t.Errorf("there is no %s.lua", name)
		}
	}
}

// TestPrint prints a script as Redis gets it: go test ./lua -run TestPrint -v -print lanes/acquire.
func TestPrint(t *testing.T) {
	if *printed == "" {
		return
	}
	if scripts[*printed].Script == nil {
		t.Fatalf("there is no command %q", *printed)
	}
	t.Log("\n" + expanded(*printed))
}
