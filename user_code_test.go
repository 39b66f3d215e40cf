package headgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// userCode are the places at which a program passes functions or interfaces to this module, and why
// a panic, a runtime.Goexit or a hang there fails only its job or call. "usercode" means that package
// usercode calls the function. "own goroutine" means that the goroutine of a handler, of a request
// or of the caller calls the function: asynq and net/http recover there, and a job's Timeout ends a
// hang. The functions of asynq.Config and OpenTelemetry are tested in scheduler/user_code_test.go.
var userCode = map[string]string{
	"dashboards/page.Options.Authenticate": "usercode",
	"dashboards/page.Options.KeyOf":        "usercode",
	"dashboards/page.Options.NormalizeKey": "usercode",
	"scheduler.ErrorClass.Is":              "own goroutine; usercode at the job's Timeout",
	"scheduler.Rules.RuleFor":              "usercode",
	"scheduler.Shards.KeyOf":               "own goroutine in Enqueue; usercode in EnqueueAll",
	"scheduler/cron.Entry.Payload":         "usercode",
	"scheduler/cron.Entry.Options":         "usercode, with the client",
	"tasks.CrawlHandler.Client":            "own goroutine",
	"tasks.CrawlHandler.Options":           "own goroutine",
	"tasks.Command.Args":                   "own goroutine",
	"tasks.Feedback.Costs":                 "own goroutine",
	"tasks.Feedback.Judge":                 "own goroutine",
	"tasks.HTTPHandler.Proxy":              "own goroutine",
	"tasks.HTTPHandler.PutBackAs":          "own goroutine",
	"tasks.HTTPHandler.Transport":          "own goroutine",
	"tasks.Response.Body":                  "ours, which the program calls",
	"throttle.Options.Clock":               "own goroutine: only the limiter of NewLocal has it",
}

// TestUserCode_AllPlaces: each exported field that is a function or an interface is in userCode.
func TestUserCode_AllPlaces(t *testing.T) {
	found := map[string]bool{}
	for _, dir := range public(t) {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok || !spec.Name.IsExported() {
					return true
				}
				fields, ok := spec.Type.(*ast.StructType)
				if !ok {
					return true
				}
				for _, field := range fields.Fields.List {
					for _, name := range field.Names {
						if name.IsExported() && isCode(field.Type) {
							found[dir+"."+spec.Name.Name+"."+name.Name] = true
						}
					}
				}
				return true
			})
		}
	}
	for place := range found {
		if userCode[place] == "" {
			t.Errorf("%s: want it in userCode, with what guards its calls", place)
		}
	}
	for place := range userCode {
		if !found[place] {
			t.Errorf("%s is in userCode, but no such field is a function or an interface", place)
		}
	}
}

// isCode reports whether a field's type is a function, or an interface that programs implement.
func isCode(typ ast.Expr) bool {
	switch typ := typ.(type) {
	case *ast.FuncType, *ast.InterfaceType:
		return true
	case *ast.ArrayType:
		return isCode(typ.Elt)
	case *ast.SelectorExpr:
		pkg, _ := typ.X.(*ast.Ident)
		return pkg != nil && slices.Contains([]string{"http.RoundTripper", "asynq.Option", "asynq.Handler", "asynq.Logger", "slog.Handler"}, pkg.Name+"."+typ.Sel.Name)
	}
	return false
}
