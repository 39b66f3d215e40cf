// Package enum gives the values of a type that counts from 0 names, for config files and logs.
package enum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names are the names of a type's values, in their order. Case and spaces count.
type Names []string

// Has reports whether a value has a name.
func (n Names) Has(value int) bool { return value >= 0 && value < len(n) }

// Text returns the name of a value, or its number if it has none.
func (n Names) Text(value int) string {
	if !n.Has(value) {
		return strconv.Itoa(value)
	}
	return n[value]
}

// Marshal is Text for encoding.TextMarshaler: a value without a name is an error, because it could
// not be read back.
func (n Names) Marshal(value int) ([]byte, error) {
	if !n.Has(value) {
		return nil, fmt.Errorf("%d: want 0 to %d", value, len(n)-1)
	}
	return []byte(n[value]), nil
}

// Unmarshal sets value to the one with that name. If there is none, it leaves value as it was and
// returns an error that lists the names.
func (n Names) Unmarshal(text []byte, value *int) error {
	i := slices.Index(n, string(text))
	if i < 0 {
		return fmt.Errorf("%q: want one of %s", text, n)
	}
	*value = i
	return nil
}

// String lists the names.
func (n Names) String() string { return strings.Join(n, ", ") }
