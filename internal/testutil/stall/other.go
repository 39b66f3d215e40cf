//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "stall: it finds the processes of a command in /proc, which only Linux has: run it on Linux")
	os.Exit(1)
}
