// Package version tells which version of headgate a program contains.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// linked is the version that make and the Dockerfile give to the linker. It contains the commit.
var linked string

const (
	module  = "github.com/headgate/headgate"
	unknown = "(devel)"
)

// Headgate returns the version of headgate in this program: the linked one, or else the one that Go
// has recorded. It is (devel) if Go knows none, for example because go.mod replaces the module by a
// folder.
func Headgate() string {
	info, ok := debug.ReadBuildInfo()
	if linked != "" || !ok {
		return cmp.Or(linked, unknown)
	}
	return recorded(info)
}

func recorded(info *debug.BuildInfo) string {
	if info.Main.Path == module {
		return cmp.Or(info.Main.Version, unknown)
	}
	m := dependency(info, module)
	if m.Replace != nil {
		m = m.Replace
	}
	if strings.HasPrefix(m.Version, "v0.0.0-00010101000000-") { // go mod tidy writes this for a replaced module
		return unknown
	}
	return cmp.Or(m.Version, unknown)
}

// Asynq returns the version of asynq in this program.
func Asynq() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return cmp.Or(dependency(info, "github.com/hibiken/asynq").Version, unknown)
}

// dependency returns a module of the program, or a Module without a version.
func dependency(info *debug.BuildInfo, path string) *debug.Module {
	for _, m := range info.Deps {
		if m.Path == path {
			return m
		}
	}
	return new(debug.Module)
}
