package headgate_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clockCalls end a wait after a time of their own, or measure how long a thing took.
var clockCalls = []string{
	"context.WithTimeout", "context.WithTimeoutCause", "time.After", "time.AfterFunc", "time.NewTicker", "time.NewTimer",
	"time.Since", "time.Sleep", "time.Tick",
}

// clockFields are fields of clients and servers that end a wait. The value of a field of the right
// type is not looked at.
var clockFields = []string{"DialTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout", "IdleTimeout", "WaitDelay"}

// realTime are functions that may use a clock outside of a bubble, and why.
var realTime = map[string]string{
	"cmd/internal/config.TestClient_HoldsDeadlines": "a call has to end with its deadline",
	"cmd/worker.chaos.answer":                       "the API takes some time",
	"cmd/worker.chaos.wait":                         "faults have a time and a length",
	"cmd/worker.proxy.forward":                      "a fault is a slow network",
	"dashboards/page.handle":                        "a job takes some time",
	"dashboards/page.story":                         "the pictures show eight minutes of work",
	"internal/testutil/proctest.Wait":               "this is the wait for events",
	"internal/testutil/redistest.Cluster.Options":   "longer than any test",
	"internal/testutil/redistest.Patient":           "longer than any test",
	"internal/testutil/redistest.Sentinel.Options":  "longer than any test",
	"internal/testutil/stall.staller.wait":          "it is no test",
	"scheduler.stack.fetch":                         "only bubbles call it",
	"scheduler.takes":                               "only bubbles call it",
	"scheduler.tap.hook":                            "only bubbles make it slow",
	"scheduler.wire.around":                         "only bubbles make it slow",
}

// TestTests_WaitForEvents: outside of a bubble of testing/synctest a test waits for an event, and only
// -timeout ends the wait (proctest.Until). A test is outside if it calls no function that makes a bubble.
func TestTests_WaitForEvents(t *testing.T) {
	type source struct {
		dir   string
		tests bool
	}
	packages := map[source][]*ast.File{}
	set := token.NewFileSet()
	for _, path := range files(t, isTestCode) {
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		of := source{filepath.ToSlash(filepath.Dir(path)), strings.HasSuffix(path, "_test.go")}
		packages[of] = append(packages[of], file)
	}
	used := map[string]bool{}
	for of, files := range packages {
		for _, d := range realDeclarations(files) {
			for _, found := range clocks(d.node) {
				name := of.dir + "." + strings.TrimPrefix(d.receiver+"."+d.name, ".")
				used[name] = true
				if realTime[name] == "" {
					t.Errorf("%s: %s uses %s outside of a bubble: wait for an event with proctest.Until", set.Position(found.at), name, found.what)
				}
			}
		}
	}
	for name := range realTime {
		if !used[name] {
			t.Errorf("%s is an exception, but uses no clock", name)
		}
	}
}

// isTestCode matches tests and the packages that only tests use.
func isTestCode(path string) bool {
	path = filepath.ToSlash(path)
	return strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".go") &&
		(strings.HasPrefix(path, "internal/testutil/") || strings.HasPrefix(path, "cmd/internal/cli/clitest/"))
}

// declaration is a function, a method or a type of a package.
type declaration struct {
	name     string
	receiver string // the type's name, for methods
	node     ast.Node
	names    map[string]bool // all names in it, and selectors with their dot
	isTest   bool
	bubble   bool // it calls synctest.Test
}

// realDeclarations returns the declarations that some test outside of bubbles reaches. Of files without
// tests, which other packages use, these are all.
func realDeclarations(files []*ast.File) []*declaration {
	all := declarations(files)
	if !slices.ContainsFunc(all, func(d *declaration) bool { return d.isTest }) {
		return all
	}
	reached := map[*declaration]bool{}
	for _, d := range all {
		if !d.isTest {
			continue
		}
		within := reach(all, d)
		if !slices.ContainsFunc(within, func(d *declaration) bool { return d.bubble }) {
			for _, d := range within {
				reached[d] = true
			}
		}
	}
	return slices.DeleteFunc(all, func(d *declaration) bool { return !reached[d] })
}

func declarations(files []*ast.File) (all []*declaration) {
	for _, file := range files {
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				all = append(all, newFunction(decl))
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						all = append(all, newDeclaration(spec.Name.Name, spec))
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							all = append(all, newDeclaration(id.Name, spec))
						}
					}
				}
			}
		}
	}
	return all
}

func newDeclaration(called string, node ast.Node) *declaration {
	d := &declaration{name: called, node: node, names: map[string]bool{}}
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			d.names[n.Name] = true
		case *ast.SelectorExpr:
			d.names["."+n.Sel.Name] = true
			d.bubble = d.bubble || name(n) == "synctest.Test"
		}
		return true
	})
	return d
}

func newFunction(decl *ast.FuncDecl) *declaration {
	d := newDeclaration(decl.Name.Name, decl)
	if decl.Recv == nil {
		d.isTest = slices.ContainsFunc([]string{"Test", "Benchmark", "Fuzz", "Example", "init"}, func(prefix string) bool {
			return strings.HasPrefix(d.name, prefix)
		})
		return d
	}
	ast.Inspect(decl.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && d.receiver == "" {
			d.receiver = id.Name
		}
		return true
	})
	return d
}

// reach returns a declaration and those that it needs: what it names, and of types that it needs the
// methods that it names.
func reach(all []*declaration, from *declaration) []*declaration {
	found := []*declaration{from}
	names, in := maps.Clone(from.names), map[*declaration]bool{from: true}
	for grew := true; grew; {
		grew = false
		for _, d := range all {
			needed := names[d.name]
			if d.receiver != "" {
				needed = names["."+d.name] && names[d.receiver]
			}
			if in[d] || !needed {
				continue
			}
			grew, in[d] = true, true
			found = append(found, d)
			maps.Copy(names, d.names)
		}
	}
	return found
}

type clockUse struct {
	what string
	at   token.Pos
}

// clocks returns the uses of clocks.
func clocks(node ast.Node) (found []clockUse) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if slices.Contains(clockCalls, name(n)) {
				found = append(found, clockUse{name(n), n.Pos()})
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(clockFields, key.Name) {
				found = append(found, clockUse{"the field " + key.Name, n.Pos()})
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if field, ok := left.(*ast.SelectorExpr); ok && slices.Contains(clockFields, field.Sel.Name) && !isZero(n.Rhs) {
					found = append(found, clockUse{"the field " + field.Sel.Name, n.Pos()})
				}
			}
		}
		return true
	})
	return found
}

// isZero reports whether all values are 0, by which a limit is taken away.
func isZero(values []ast.Expr) bool {
	return !slices.ContainsFunc(values, func(v ast.Expr) bool {
		number, ok := v.(*ast.BasicLit)
		return !ok || number.Value != "0"
	})
}

// name returns "package.Name" for such an expression.
func name(n ast.Node) string {
	if s, ok := n.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return fmt.Sprintf("%s.%s", x.Name, s.Sel.Name)
		}
	}
	return ""
}
