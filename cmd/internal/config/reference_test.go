package config

import (
	"encoding"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// The tables of docs/configuration.md are made from the structs of this package: a field's
// name is its tag, what it means its comment, its default what the comment or Default says.
const reference = "../../../docs/configuration.md"

// fieldTable is a table with the line above it, which names what has these fields.
var fieldTable = regexp.MustCompile(`(?m)^<!-- fields of (.+) -->\n(?:\|.*\n)*`)

// TestReference: go test ./cmd/internal/config -run TestReference -update writes the tables.
func TestReference(t *testing.T) {
	page := proctest.ReadFile(t, reference)
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
	for _, block := range yamlBlock.FindAllStringSubmatch(proctest.ReadFile(t, reference), -1) {
		d := newDecoder("headgate.yaml")
		d.decode([]byte(block[1]), &document{Config: *Default()})
		for path := range d.positions {
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

// theFile has the fields of the top.
const theFile = "the file"

// A fieldRow is a row of the reference.
type fieldRow struct {
	of   string // what has the field, such as limits.NAME
	name string

	typ, standard, meaning string
}

func (f fieldRow) path() string { return strings.TrimPrefix(f.of+"."+f.name, theFile+".") }

// fields are those of all structs that a file fills, each struct's once.
func fields(t *testing.T) []fieldRow {
	t.Helper()
	w := walk{t: t, comments: fieldComments(t), seen: map[reflect.Type]string{reflect.TypeFor[Then](): "tasks.NAME.then[]"}}
	w.visit(theFile, reflect.ValueOf(document{Config: *Default()}))
	return w.rows
}

type walk struct {
	t        *testing.T
	comments map[string]string       // by Type.Field
	seen     map[reflect.Type]string // where its fields are
	rows     []fieldRow
}

// visit adds the fields of a struct, and then those of the structs in it.
func (w *walk) visit(of string, what reflect.Value) {
	var inner []func()
	for _, f := range reflect.VisibleFields(what.Type()) {
		row := fieldRow{of: of, name: f.Tag.Get("yaml")}
		if row.name == "" {
			continue
		}
		owner := what.FieldByIndex(f.Index[:len(f.Index)-1]).Type().Name()
		comment := w.comments[owner+"."+f.Name]
		if comment == "" {
			w.t.Errorf("%s.%s has no comment", owner, f.Name)
		}
		row.meaning, row.standard = readComment(w.t, f.Name, comment)
		if row.standard == "" {
			row.standard = standard(what.FieldByIndex(f.Index))
		}
		if owner == "Backoff" && strings.HasSuffix(of, "errors[]") {
			row.standard = "as for other errors"
		}
		row.typ = w.typeText(f.Type)
		if elem, each := element(f.Type); isStruct(elem) {
			if at := row.path() + each; w.seen[elem] == "" || w.seen[elem] == at {
				w.seen[elem] = at
				inner = append(inner, func() { w.visit(at, reflect.Zero(elem)) })
			}
			row.typ = strings.Replace(row.typ, "fields", fmt.Sprintf("[%s](#%s)", w.seen[elem], anchor(w.seen[elem])), 1)
		}
		w.rows = append(w.rows, row)
	}
	for _, visit := range inner {
		visit()
	}
}

// anchor is what a heading of a path becomes in a link.
func anchor(path string) string {
	return strings.ToLower(strings.NewReplacer(".", "", "[]", "").Replace(path))
}

// element is the type of what a list, a map or a pointer has, and what follows on its path.
func element(of reflect.Type) (elem reflect.Type, each string) {
	switch {
	case isText(of):
	case of.Kind() == reflect.Pointer:
		return of.Elem(), ""
	case of.Kind() == reflect.Map:
		return of.Elem(), ".NAME"
	case of.Kind() == reflect.Slice:
		return of.Elem(), "[]"
	}
	return of, ""
}

func isStruct(t reflect.Type) bool { return t.Kind() == reflect.Struct && !isText(t) }

func isText(t reflect.Type) bool {
	_, ok := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(t))
	return ok
}

// formulas are the types whose texts are expressions, or have some.
var formulas = map[reflect.Type]string{
	reflect.TypeFor[expression.Key]():        "expression",
	reflect.TypeFor[expression.Cost]():       "expression",
	reflect.TypeFor[expression.Settle]():     "expression",
	reflect.TypeFor[expression.Priority]():   "expression",
	reflect.TypeFor[expression.Weight]():     "expression",
	reflect.TypeFor[expression.When]():       "expression",
	reflect.TypeFor[expression.ResponseIs](): "expression",
	reflect.TypeFor[Argument]():              "text with expressions",
	reflect.TypeFor[throttle.Rate]():         "rate",
	reflect.TypeFor[throttle.Override]():     "rate, `capacity N`, or both",
	reflect.TypeFor[Redis]():                 "URL",
	reflect.TypeFor[Secret]():                "text, `${env:NAME}` or `${file:/path}`",
	reflect.TypeFor[Network]():               "network",
	reflect.TypeFor[Proxy]():                 "URL or `environment`",
	reflect.TypeFor[int64]():                 "size",
	reflect.TypeFor[time.Duration]():         "duration",
	reflect.TypeFor[regexp.Regexp]():         "regular expression",
	reflect.TypeFor[any]():                   "any, as in JSON",
}

// choices finds the words in the error of a type that has a few.
var choices = regexp.MustCompile(`want (?:one of )?(.+?)(?:, not "\?")?$`)

// typeText is a type in the words of a file.
func (w *walk) typeText(of reflect.Type) string {
	if words := formulas[of]; words != "" {
		return words
	}
	if text, ok := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(of)); ok {
		words := choices.FindStringSubmatch(text.UnmarshalText([]byte("?")).Error())
		if words == nil {
			w.t.Fatalf("%s: want words for the type", of)
		}
		return "`" + strings.NewReplacer(", ", "`, `", " or ", "`, `").Replace(words[1]) + "`"
	}
	switch of.Kind() {
	case reflect.Pointer:
		return w.typeText(of.Elem())
	case reflect.Slice:
		return "list of " + w.typeText(of.Elem())
	case reflect.Map:
		return "`NAME:` " + w.typeText(of.Elem())
	case reflect.Struct:
		return "fields"
	case reflect.Int:
		return "number"
	case reflect.Bool:
		return "`true`, `false`"
	}
	return "text"
}

// constants are the defaults that comments name.
var constants = map[string]string{
	"tasks.DefaultMaxSave":        binary(tasks.DefaultMaxSave),
	"tasks.DefaultMaxPage":        binary(tasks.DefaultMaxPage),
	"tasks.DefaultMaxPages":       fmt.Sprint(tasks.DefaultMaxPages),
	"tasks.DefaultMaxHostPages":   fmt.Sprint(tasks.DefaultMaxHostPages),
	"tasks.DefaultCommandTimeout": duration.Exact(tasks.DefaultCommandTimeout),
	"tasks.DefaultMaxOutput":      binary(tasks.DefaultMaxOutput),
}

func binary(n int) string {
	unit := 0
	for ; n%1024 == 0; unit++ {
		n /= 1024
	}
	return fmt.Sprint(n) + []string{" bytes", "KiB", "MiB", "GiB"}[unit]
}

var (
	isWhat     = regexp.MustCompile(`^(?:is|are|says) `)
	zero       = regexp.MustCompile(` ?(?:The zero value|Nil) means (.+?)\.(?: |$)`)
	isRequired = regexp.MustCompile(` ?Required([^.;]*)([.;])`)
)

// readComment returns the meaning of a field by its comment, and its default if the comment has one.
func readComment(t *testing.T, name, comment string) (meaning, standard string) {
	paragraph, _, _ := strings.Cut(comment, "\n\n")
	text, ok := strings.CutPrefix(strings.Join(strings.Fields(paragraph), " "), name+" ")
	if !ok {
		t.Errorf("the comment of %s begins with %.20q", name, comment)
	}
	if m := isRequired.FindStringSubmatch(text); m != nil {
		standard = "required" + m[1]
	}
	if m := zero.FindStringSubmatch(text); m != nil {
		if value := constants[m[1]]; value != "" {
			m[1] = "`" + value + "`"
		}
		standard = strings.TrimPrefix(standard+"; else "+m[1], "; else ")
	}
	text = zero.ReplaceAllString(isRequired.ReplaceAllString(text, ""), "")
	text = strings.TrimSpace(isWhat.ReplaceAllString(text, ""))
	return strings.ToUpper(text[:1]) + text[1:], standard
}

// standard returns the default of a field by its value in an empty file.
func standard(value reflect.Value) string {
	if value.Kind() == reflect.Pointer && !value.IsNil() {
		value = value.Elem()
	}
	_, isChoice := reflect.TypeAssert[fmt.Stringer](value)
	switch {
	case value.Type() == reflect.TypeFor[time.Duration]() && !value.IsZero():
		return "`" + duration.Exact(time.Duration(value.Int())) + "`"
	case value.Type() == reflect.TypeFor[Queues]():
		return "`{default: 1}`"
	case value.Kind() == reflect.Map && !value.IsZero():
		return "`{" + strings.ReplaceAll(strings.Trim(fmt.Sprint(value), "map[]"), ":", ": ") + "}`"
	case value.Kind() == reflect.Bool, value.Kind() == reflect.Int && isChoice, isText(value.Type()) && isChoice && value.Kind() == reflect.Int,
		!value.IsZero() && (value.Kind() == reflect.String || value.Kind() == reflect.Int):
		return "`" + fmt.Sprint(value) + "`"
	}
	return "–"
}

// library are the files of other packages whose structs a file fills.
var library = []string{
	"../../../throttle/limit.go", "../../../throttle/override.go", "../../../scheduler/retry.go",
	"../../../scheduler/cron/entry.go", "../../../tasks/crawl_handler.go", "../../../tasks/exec_handler.go",
}

// fieldComments are those of the package's structs and of a limit, by Type.Field.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for _, source := range append(library, sources...) {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if structure, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range structure.Fields.List {
					for _, name := range f.Names {
						comments[spec.Name.Name+"."+name.Name] = f.Doc.Text()
					}
				}
			}
			return false
		})
	}
	return comments
}
