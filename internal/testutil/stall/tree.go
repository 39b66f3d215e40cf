//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// process is what /proc tells of a process.
type process struct {
	pid, parent int
	name, state string
}

// builders are programs that tests run to build others. Their speed proves nothing.
var builders = []string{"go", "compile", "link", "asm", "vet", "cgo"}

// tree returns the IDs of a process and its descendants. It leaves out processes that are stopped or
// have ended, and those of the Go toolchain.
func tree(root int) (ids []int, err error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	within := map[int]bool{root: true}
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if within[p.parent] && !within[p.pid] {
				within[p.pid], grew = true, true
			}
		}
	}
	for _, p := range all {
		if within[p.pid] && strings.Contains("RSD", p.state) && !slices.Contains(builders, p.name) {
			ids = append(ids, p.pid)
		}
	}
	return ids, nil
}

// processes lists all processes of the machine.
func processes() (all []process, err error) {
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		pid, noPID := strconv.Atoi(e.Name())
		if noPID != nil {
			continue
		}
		text, gone := os.ReadFile("/proc/" + e.Name() + "/stat")
		if gone != nil {
			continue
		}
		p, err := parseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		all = append(all, p)
	}
	return all, err
}

// parseStat parses "PID (NAME) STATE PARENT …". The name may have spaces and parentheses.
func parseStat(text string) (p process, err error) {
	first, last := strings.Index(text, "("), strings.LastIndex(text, ")")
	if first < 0 || last < first {
		return p, fmt.Errorf("want a name in parentheses: %q", text)
	}
	p.name = text[first+1 : last]
	_, err = fmt.Sscan(text[:first]+text[last+1:], &p.pid, &p.state, &p.parent)
	return p, err
}
