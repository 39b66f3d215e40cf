package script

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

// A source is one script's file: its header, and its code without comments.
type source struct{ header, code string }

var comment = regexp.MustCompile(`(?m)[ \t]*--.*$`)

func read(t *testing.T, file string) source {
	t.Helper()
	text := proctest.ReadFile(t, folder+file)
	var header []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "-- ") || strings.HasPrefix(line, "-- @include") {
			break
		}
		header = append(header, line)
	}
	return source{strings.Join(header, ""), comment.ReplaceAllString(text, "")}
}

// commands runs a test on every command's file.
func commands(t *testing.T, f func(t *testing.T, name string, s source)) {
	for _, name := range commandFiles(t) {
		t.Run(name, func(t *testing.T) { f(t, name, read(t, name+".lua")) })
	}
}

// matches lists, sorted and once each, what the pattern's groups match.
func matches(pattern, text string) []string {
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, strings.Join(match[1:], ""))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// restForm matches code that reads all arguments from a number on.
const restForm = `for \w+ = (\d+), #ARGV|unpack\(ARGV, (\d+)(?:, n \+ 3)?\)|load_needs\((\d+), #ARGV|read_groups\((\d+)\)|, i = .*, (\d+)\n(?:for|while)`

func TestHeader_Arguments(t *testing.T) {
	commands(t, func(t *testing.T, name string, s source) {
		if first, _, _ := strings.Cut(s.header, "\n"); !regexp.MustCompile(`^-- \w+\W.*\w[.]?$`).MatchString(first) {
			t.Errorf("the first line is %q, want what the script does", first)
		}
		if !regexp.MustCompile(`(?m)^-- Returns \S`).MatchString(s.header) {
			t.Error("the header does not say what the script returns")
		}
		for _, tt := range []struct{ what, inHeader, inCode, code string }{
			{"keys", `(?m)^-- KEYS\[(\d+)\] \S`, `KEYS\[(\d+)\]`, comment.ReplaceAllString(expanded(name), "")},
			{"arguments", `(?m)^-- ARGV\[(\d+)\] \S`, `ARGV\[(\d+)\]`, s.code},
			{"last arguments", `(?m)^-- ARGV\[(\d+)…\] \S`, restForm, s.code},
		} {
			said, read := matches(tt.inHeader, s.header), matches(tt.inCode, tt.code)
			if diff := cmp.Diff(said, read); diff != "" {
				t.Errorf("%s: the header says (-) and the code reads (+)\n%s", tt.what, diff)
			}
		}
	})
}

// TestCode_NamesArguments: the lines up to the first empty one bind keys and arguments to locals.
// Later lines do not read them.
func TestCode_NamesArguments(t *testing.T) {
	numbered := regexp.MustCompile(`(KEYS|ARGV)\[\d+\]`)
	commands(t, func(t *testing.T, _ string, s source) {
		first, rest, _ := strings.Cut(strings.TrimLeft(s.code, "\n"), "\n\n")
		for line := range strings.Lines(first) {
			if numbered.MatchString(line) && !strings.HasPrefix(line, "local ") {
				t.Errorf("%q reads an argument without naming it", line)
			}
		}
		if found := numbered.FindString(rest); found != "" {
			t.Errorf("%s is read after the first lines", found)
		}
	})
}

// TestCode_ForbiddenWords: scripts use nothing that some versions of Redis lack, or that loses digits
// of a time.
func TestCode_ForbiddenWords(t *testing.T) {
	for _, rule := range []struct{ pattern, why string }{
		{`tostring\s*\(`, "Redis writes 14 digits of a number: use int()"},
		{`cjson|cmsgpack|struct\.|\bbit\.`, "not everywhere, or not exact"},
		{`\.\.\s*[\w.]*(_us|_ms|\bat)\b`, "a time joined to a text loses digits: use int()"},
		{`\b[\w.]*(_us|_ms)\s*\.\.`, "a time joined to a text loses digits: use int()"},
		{`PEXPIREAT|EXPIREAT|'PXAT'|'EXAT'`, "a clock that stepped back would delete the key: use a relative time"},
		{`\bos\.|\bio\.|math\.random|loadstring`, "not for scripts"},
		{`'KEYS'|'SCAN'|'FLUSH`, "reaches beyond the script's keys"},
	} {
		pattern := regexp.MustCompile(rule.pattern)
		for _, name := range allFiles(t) {
			if found := pattern.FindString(read(t, name+".lua").code); found != "" {
				t.Errorf("%s has %q: %s", name, found, rule.why)
			}
		}
	}
}

var includeLine = regexp.MustCompile(`(?m)^ *-- @include (\w+)\n`)

func TestExpand_Scripts(t *testing.T) {
	commands(t, func(t *testing.T, name string, _ source) {
		text := expanded(name)
		chunk, err := parse.Parse(strings.NewReader(text), name)
		if err != nil {
			t.Fatalf("Lua syntax: %v", err)
		}
		function, err := lua.Compile(chunk, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, global := range globals(function) {
			if !slices.Contains(redisGlobals, global) {
				t.Errorf("%s is neither a local variable nor a global of Redis", global)
			}
		}
		if strings.Contains(text, "@include") {
			t.Error("an include was not expanded")
		}
		code := comment.ReplaceAllString(text, "")
		if n := strings.Count(code, "'TIME'"); n > 1 {
			t.Errorf("reads the time %d times, and two times differ", n)
		}
		for _, include := range includeFiles(t) {
			part := strings.TrimSpace(read(t, include+".lua").code)
			if n := strings.Count(code, part); n > 1 {
				t.Errorf("has include %s %d times", include, n)
			}
		}
	})
}

var redisGlobals = []string{
	"ARGV", "KEYS", "redis", "cjson", "math", "string", "table", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type", "unpack", "error",
}

// globals lists the global variables that a function and the functions in it use.
func globals(f *lua.FunctionProto) (names []string) {
	for _, instruction := range f.Code {
		if op := int(instruction >> 26); op == lua.OP_GETGLOBAL || op == lua.OP_SETGLOBAL {
			names = append(names, f.Constants[instruction&0x3ffff].String())
		}
	}
	for _, inner := range f.FunctionPrototypes {
		names = append(names, globals(inner)...)
	}
	return names
}

func TestIncludes_Used(t *testing.T) {
	used := map[string]bool{"guard": true, "add_to_batch": true, "after_end": true} // Go puts them before or after asynq's scripts
	for _, name := range allFiles(t) {
		for _, match := range includeLine.FindAllStringSubmatch(proctest.ReadFile(t, folder+name+".lua"), -1) {
			used[match[1]] = true
		}
	}
	for _, include := range includeFiles(t) {
		if !used[path.Base(include)] {
			t.Errorf("nothing includes %s", include)
		}
	}
	if len(includeFiles(t)) != len(includes) {
		t.Error("two includes have one name")
	}
}

// expanded returns the text of a script that Redis receives.
func expanded(command string) string { return expand(command+".lua", map[string]bool{}) }

// folder is where the scripts are.
const folder = "../../lua/"

// commandFiles and includeFiles are the files in folder, without their ending.
func commandFiles(t *testing.T) []string {
	return slices.DeleteFunc(paths(t, "*/*.lua"), func(path string) bool { return strings.HasPrefix(path, "include/") })
}

func includeFiles(t *testing.T) []string {
	return append(paths(t, "include/*.lua"), paths(t, "*/include/*.lua")...)
}

func allFiles(t *testing.T) []string { return append(commandFiles(t), includeFiles(t)...) }

func paths(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(folder + pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	for i, path := range found {
		found[i] = strings.TrimPrefix(strings.TrimSuffix(path, ".lua"), folder)
	}
	return found
}

var newScript = regexp.MustCompile(`script\.New\("([^"]+)"\)`)

// TestFiles_Run: exactly one package runs each script.
func TestFiles_Run(t *testing.T) {
	runs := map[string]string{} // by script
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/bench/") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range newScript.FindAllSubmatch(text, -1) {
			if other := runs[string(match[1])]; other != "" {
				t.Errorf("%s runs %s.lua, as %s does", path, match[1], other)
			}
			runs[string(match[1])] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	files := commandFiles(t)
	for _, name := range files {
		if runs[name] == "" {
			t.Errorf("no package runs %s.lua", name)
		}
	}
	for name, path := range runs {
		if !slices.Contains(files, name) {
			t.Errorf("%s: there is no %s.lua", path, name)
		}
	}
}

// TestKeys_Listed: the table in docs/design.md lists the keys that scripts and Go use, and no other,
// with the types of keyTypes.
func TestKeys_Listed(t *testing.T) {
	listed, used := map[string]bool{}, map[string]bool{}
	find := func(into map[string]bool, pattern, text string) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			into[match[1]] = true
		}
	}
	text := proctest.ReadFile(t, "../../docs/design.md")
	find(listed, "`hg:\\{scope\\}:(\\w+)", text)
	for _, row := range regexp.MustCompile("(?m)^\\| `hg:\\{scope\\}:(\\w+:?).*?` \\| ([\\w ]+) \\|").FindAllStringSubmatch(text, -1) {
		if want := typeOf(row[1]); want != row[2] && row[1] != "m:" && row[2] != "channel" {
			t.Errorf("docs/design.md: %s is a %s, want %s", row[1], row[2], want)
		}
	}
	for _, name := range commandFiles(t) {
		find(used, `hg\('(\w+)'`, expanded(name))
	}
	for _, folder := range []string{"throttle", "internal/waitdb", "internal/stats", "internal/frontier", "scheduler/cron"} {
		files, err := filepath.Glob("../../" + folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text := proctest.ReadFile(t, file)
			if !strings.HasSuffix(file, "_test.go") {
				find(used, `(?:[pP]refix(?:\(\w+\))?\s*\+\s*|\.key\(|\.lock\(ctx, )"(\w+)`, text)
			}
		}
	}
	if diff := cmp.Diff(listed, used); diff != "" {
		t.Errorf("keys in docs/design.md (-) and in the code (+):\n%s", diff)
	}
}

// TestCode_KeyNames: only include/scope.lua builds names of keys.
func TestCode_KeyNames(t *testing.T) {
	for _, name := range allFiles(t) {
		if name != "include/scope" && regexp.MustCompile(`\bP\b`).MatchString(read(t, name+".lua").code) {
			t.Errorf("%s makes a key of its own: use hg()", name)
		}
	}
}
