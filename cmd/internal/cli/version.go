package cli

import (
	"fmt"
	"runtime/debug"
)

// version returns the versions of the program, of Go and of asynq. That of a build from a clone has
// the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	asynq := ""
	for _, m := range info.Deps {
		if m.Path == "github.com/hibiken/asynq" {
			asynq = m.Version
		}
	}
	return fmt.Sprintf("%s, %s, asynq %s", info.Main.Version, info.GoVersion, asynq)
}
