package version

import (
	"runtime/debug"
	"testing"
)

func TestRecorded(t *testing.T) {
	const module = "github.com/headgate/headgate"
	for _, test := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"the commands", debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.1.0"}}, "v0.1.0"},
		{"the commands, without a version", debug.BuildInfo{Main: debug.Module{Path: module}}, "(devel)"},
		{"a program", debug.BuildInfo{Main: debug.Module{Path: "example.com/a"}, Deps: []*debug.Module{{Path: module, Version: "v0.2.0"}}}, "v0.2.0"},
		{"a program with a fork", debug.BuildInfo{Deps: []*debug.Module{
			{Path: module, Version: "v0.2.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v0.2.1"}},
		}}, "v0.2.1"},
		{"a program with a checkout", debug.BuildInfo{Deps: []*debug.Module{
			{Path: module, Version: "v0.0.0-00010101000000-000000000000", Replace: &debug.Module{Path: "../headgate"}},
		}}, "(devel)"},
		{"no headgate", debug.BuildInfo{}, "(devel)"},
	} {
		if got := recorded(&test.info, module); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
