package cli

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/alecthomas/kong"
)

// VersionCommand prints the version.
type VersionCommand struct {
	JSON bool `help:"Print a JSON object."`
}

// Run prints the version, the commit and the versions of Go and asynq.
func (c *VersionCommand) Run(stdio IO) error {
	var v struct {
		Version  string `json:"version"` // "(devel)" for a checkout without a tag
		Commit   string `json:"commit,omitempty"`
		Modified bool   `json:"modified,omitempty"` // the checkout differed from the commit
		Time     string `json:"time,omitempty"`     // of the commit
		Go       string `json:"go"`
		Asynq    string `json:"asynq"`
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("the program was built without information about its version")
	}
	v.Version, v.Go = cmp.Or(info.Main.Version, "(devel)"), info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/hibiken/asynq" {
			v.Asynq = m.Version
		}
	}
	if c.JSON {
		return JSON(stdio.Out, v)
	}
	commit := v.Commit
	if v.Modified {
		commit += ", changed since"
	}
	return Fields(stdio.Out, [][2]string{
		{"version", v.Version}, {"commit", commit}, {"time", v.Time}, {"go", v.Go}, {"asynq", v.Asynq},
	})
}

// VersionFlag is VersionCommand as a flag.
type VersionFlag bool

// BeforeReset prints the version and ends the command. kong calls it.
func (VersionFlag) BeforeReset(k *kong.Context, stdio IO) error {
	show := &VersionCommand{JSON: slices.Contains(k.Args, "--json")}
	if err := show.Run(stdio); err != nil {
		return fmt.Errorf("--version: %w", err)
	}
	panic(exit(0))
}
