package cli

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// VersionFlag is a flag that prints the version.
type VersionFlag bool

// BeforeReset prints the version and ends the command. kong calls it.
func (VersionFlag) BeforeReset(_ *kong.Context, stdio IO) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("--version: the program was built without information about its version")
	}
	build := map[string]string{}
	for _, s := range info.Settings {
		build[s.Key] = s.Value
	}
	for _, m := range info.Deps {
		build[m.Path] = m.Version
	}
	commit := build["vcs.revision"]
	if build["vcs.modified"] == "true" {
		commit += ", changed since"
	}
	err := Fields(stdio.Out, [][2]string{
		{"version", cmp.Or(info.Main.Version, "(devel)")}, {"commit", commit}, {"time", build["vcs.time"]},
		{"go", info.GoVersion}, {"asynq", build["github.com/hibiken/asynq"]},
	})
	if err != nil {
		return fmt.Errorf("--version: %w", err)
	}
	panic(exit(0))
}
