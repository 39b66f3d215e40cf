package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime/debug"
	"slices"

	"github.com/alecthomas/kong"
)

// Version says what a command was built from.
type Version struct {
	Version  string `json:"version"` // "(devel)" for a checkout without a tag
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // whether the checkout differed from the commit
	Time     string `json:"time,omitempty"`     // of the commit
	Go       string `json:"go"`
	Asynq    string `json:"asynq"`
}

// ReadVersion reads the version of the running program.
func ReadVersion() Version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Version{Version: "unknown"}
	}
	v := Version{Version: cmp.Or(info.Main.Version, "(devel)"), Go: info.GoVersion}
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
	return v
}

// Print prints it for people.
func (v Version) Print(w io.Writer) error {
	commit := v.Commit
	if v.Modified {
		commit += ", changed since"
	}
	return Fields(w, [][2]string{
		{"version", v.Version}, {"commit", commit}, {"time", v.Time}, {"go", v.Go}, {"asynq", v.Asynq},
	})
}

// VersionCommand prints the version.
type VersionCommand struct {
	JSON bool `help:"Print a JSON object."`
}

// Run prints the version.
func (c *VersionCommand) Run(stdio IO) error {
	v := ReadVersion()
	if c.JSON {
		return JSON(stdio.Out, v)
	}
	return v.Print(stdio.Out)
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
