package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// names are the words of a type whose values count from 0.
type names []string

func (n names) text(value int) string {
	if value < 0 || value >= len(n) {
		return strconv.Itoa(value)
	}
	return n[value]
}

func (n names) marshal(value int) ([]byte, error) {
	if value < 0 || value >= len(n) {
		return nil, fmt.Errorf("%d: want 0 to %d", value, len(n)-1)
	}
	return []byte(n[value]), nil
}

func (n names) unmarshal(text []byte, value *int) error {
	i := slices.Index(n, string(text))
	if i < 0 {
		return fmt.Errorf("%q: want one of %s", text, strings.Join(n, ", "))
	}
	*value = i
	return nil
}
