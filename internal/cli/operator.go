package cli

import (
	"os"
	"os/user"
)

// operator is who runs the command, for the changelog: user@host.
func operator() string {
	name := "somebody"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}
