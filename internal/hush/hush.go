// Package hush keeps a command from asking its terminal for its background colour
// before main begins. Package bubbletea does so in its init, whatever command it is:
// that writes control sequences in front of the output, takes what was typed ahead, and
// waits five seconds where a terminal does not answer.
//
// Package termenv, which does the asking, takes no terminal for one where CI is set. So
// this package sets it in its own init, which comes before: packages are initialized in
// the order of their paths once all that they import is, and this one imports next to
// nothing, while termenv's path comes after it.
package hush

import "os"

var before, was = os.LookupEnv("CI")

func init() { _ = os.Setenv("CI", "true") }

// Over has the environment be again what it was.
func Over() {
	if was {
		_ = os.Setenv("CI", before)
		return
	}
	_ = os.Unsetenv("CI")
}
