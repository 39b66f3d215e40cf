// Package version tells which version of headgate a program contains.
package version

import (
	"cmp"
	"runtime/debug"
)

// linked is the version that make and the Dockerfile give to the linker. It contains the commit.
var linked string

// unknown is the version of a module if Go knows none, for example because go.mod replaces the module by
// a folder.
const unknown = "(devel)"

// Headgate returns the version of headgate in this program: the linked one, or else the one that Go
// has recorded.
func Headgate() string { return cmp.Or(linked, versionOf("github.com/headgate/headgate")) }

// Asynq returns the version of asynq in this program.
func Asynq() string { return versionOf("github.com/hibiken/asynq") }

func versionOf(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return recorded(info, path)
}

func recorded(info *debug.BuildInfo, path string) string {
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != path {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return cmp.Or(m.Version, unknown)
	}
	return unknown
}
