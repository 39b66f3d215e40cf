package main

import (
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/headgate/headgate/tasks"
)

// The help has each field of a payload, and no other.
func TestPayloadFields(t *testing.T) {
	check := func(help string, payload reflect.Type) {
		t.Helper()
		var want []string
		for _, f := range reflect.VisibleFields(payload) {
			if name := regexp.MustCompile("^[a-z_]+").FindString(f.Tag.Get("json")); name != "" {
				want = append(want, name)
			}
		}
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^  ([a-z_]+)  `).FindAllStringSubmatch(help, -1) {
			got = append(got, m[1])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the help has\n%v, the payload\n%v", got, want)
		}
	}
	check(requestFields, reflect.TypeFor[tasks.HTTPRequest]())
	check(crawlFields, reflect.TypeFor[tasks.CrawlFetch]())
}
