// Command recording runs a command in a terminal of its own and writes what is
// seen there as an animated SVG:
//
//	go run ./internal/recording FILE COMMAND [ARGUMENT...]
//
// The picture has no scripts, so it moves in a README too. Who asked the system
// for less motion, and programs that show no animations, see the last frame.
// Colours are not recorded. A command that fails is not recorded either.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: recording FILE COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	if err := record(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func record(file string, command []string) error {
	frames, err := run(command)
	if err != nil {
		return err
	}
	line := "$ " + strings.Join(command, " ")
	return os.WriteFile(file, []byte(picture(typed(line, frames))), 0o644)
}
