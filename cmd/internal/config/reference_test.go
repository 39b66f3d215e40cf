package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The tables of docs/configuration.md are made from the structs of this package: a field's
// name is its tag, what it means its comment, its default what the comment or Default says.
const reference = "../../../docs/configuration.md"

// fieldTable is a table with the line above it, which names what has these fields.
var fieldTable = regexp.MustCompile(`(?m)^<!-- fields of (.+) -->\n(?:\|.*\n)*`)

// TestReference: go test ./cmd/internal/config -run TestReference -update writes the tables.
func TestReference(t *testing.T) {
	page := readReference(t)
	tables := map[string]string{}
	for _, f := range fields(t) {
		if tables[f.of] == "" {
			tables[f.of] = "| field | type | default | meaning |\n|---|---|---|---|\n"
		}
		tables[f.of] += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.name, f.typ, f.standard, f.meaning)
	}
	made := fieldTable.ReplaceAllStringFunc(page, func(old string) string {
		name := fieldTable.FindStringSubmatch(old)[1]
		if tables[name] == "" {
			t.Errorf("%s has a table of %s, which has no fields, or a second one", reference, name)
		}
		table := "<!-- fields of " + name + " -->\n" + tables[name]
		delete(tables, name)
		return table
	})
	for name := range tables {
		t.Errorf("%s has no line <!-- fields of %s -->", reference, name)
	}
	if *update {
		if err := os.WriteFile(reference, []byte(made), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(page, made); diff != "" {
		t.Errorf("%s is stale: run go test ./cmd/internal/config -run TestReference -update\n%s", reference, diff)
	}
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// TestReferenceShowsEachField: in an example. That these are configs a test of all pages holds.
func TestReferenceShowsEachField(t *testing.T) {
	shown := map[string]bool{}
	for _, block := range yamlBlock.FindAllStringSubmatch(readReference(t), -1) {
		d := newDecoder("headgate.yaml")
		d.decode([]byte(block[1]), &document{Config: *Default()})
		for path := range d.at {
			shown[general(path)] = true
		}
	}
	for _, f := range fields(t) {
		if !shown[f.path()] {
			t.Errorf("%s has no example of %s", reference, f.path())
		}
	}
}

// general is a path with NAME for what a user names, and [] for a number.
func general(path string) string {
	path = regexp.MustCompile(`\[\d+\]`).ReplaceAllString(path, "[]")
	return regexp.MustCompile(`^(limits|tasks|queues|commands|schedules)\.(?:"[^"]*"|[^.\[]+)`).ReplaceAllString(path, "$1.NAME")
}

// TestReferenceRequires: what the page calls required is missed where it is missing.
func TestReferenceRequires(t *testing.T) {
	without := map[string]string{
		"limits.NAME.kind":          "limits: {x: {}}",
		"limits.NAME.rate":          "limits: {x: {kind: funnel}}",
		"limits.NAME.capacity":      "limits: {x: {kind: concurrency}}",
		"tasks.NAME.limits[].limit": `tasks: {"http:request": {limits: [{}]}}`,
		"tasks.NAME.then[].type":    `tasks: {"http:request": {then: [{}]}}`,
		"commands.NAME.run":         "commands: {x: {}}",
		"schedules.NAME.cron":       "schedules: {x: {task: http:request}}",
		"schedules.NAME.task":       `schedules: {x: {cron: "@daily"}}`,
	}
	for _, f := range fields(t) {
		if !strings.HasPrefix(f.standard, "required") {
			continue
		}
		_, err := Parse("headgate.yaml", []byte(without[f.path()]))
		wrong, _ := errors.AsType[Errors](err)
		missed := func(e *Error) bool { return general(e.Path) == f.path() && strings.HasPrefix(e.Message, "missing") }
		if !slices.ContainsFunc(wrong, missed) {
			t.Errorf("without %s: %v, want that it is missing", f.path(), err)
		}
	}
}

func readReference(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
