package main

import (
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/headgate/headgate/tasks"
)

// The help speaks of each field of a payload, and of no other.
func TestRequestFields(t *testing.T) {
	want := []string{"timeout"} // which JSON has as a text
	for _, f := range reflect.VisibleFields(reflect.TypeFor[tasks.HTTPRequest]()) {
		if name := regexp.MustCompile("^[a-z_]+").FindString(f.Tag.Get("json")); name != "" {
			want = append(want, name)
		}
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z_]+)  `).FindAllStringSubmatch(requestFields, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the help has\n%v, the payload\n%v", got, want)
	}
}
