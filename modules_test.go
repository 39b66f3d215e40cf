package headgate_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestModules_NoReplace(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct {
		Module           struct{ Path string }
		Replace, Exclude []any
	}
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	if module.Module.Path != "github.com/headgate/headgate" {
		t.Errorf("the module is %q", module.Module.Path)
	}
	if len(module.Replace)+len(module.Exclude) > 0 {
		t.Errorf("go.mod replaces %v and excludes %v: users of the module would not get that", module.Replace, module.Exclude)
	}
}

// TestModules_Workspace: modules with dependencies that users of the library should not get are in the
// workspace, for make test, and complete without it.
func TestModules_Workspace(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "work", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(out, &work); err != nil {
		t.Fatal(err)
	}
	var used, there []string
	for _, use := range work.Use {
		used = append(used, filepath.Join(use.DiskPath, "go.mod"))
	}
	there = files(t, func(path string) bool { return filepath.Base(path) == "go.mod" })
	slices.Sort(used)
	slices.Sort(there)
	if !slices.Equal(used, there) {
		t.Errorf("go.work uses %q, and there are %q", used, there)
	}
	for _, path := range there {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "./...")
		list.Dir, list.Env = filepath.Dir(path), append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
		if out, err := list.CombinedOutput(); err != nil {
			t.Errorf("%s without the workspace: %v\n%s", path, err, out)
		}
	}
}
