package config

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/throttle"
)

// decoder fills Go values from a YAML tree by their yaml tags. Unlike the decoder of goccy/go-yaml,
// decoder continues after an error, and keeps the position of each value.
type decoder struct {
	file          string
	positions     map[string]*token.Position // of the values in the file, by path
	undecoded     map[string]bool            // by path: whether the value could not be decoded
	probablyMeant map[string]bool            // by path: whether the file has the field with a misspelled name
	errs          Errors

	sections    map[string]string // see Config.Sections
	machineErrs Errors            // see Config.MachineErrors
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, positions: map[string]*token.Position{}, undecoded: map[string]bool{}, probablyMeant: map[string]bool{}, sections: map[string]string{}}
}

func (d *decoder) decode(data []byte, to any) {
	tokens := lexer.Tokenize(string(data))
	if d.reportTooMany(tokens) || d.reportTooDeep(tokens) || d.reportSplitTexts(tokens) {
		return
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
		d.errorAt(syntax.Token.Position, "", "not YAML: %s", syntax.Message)
		return
	}
	if err != nil {
		d.errorf("", "not YAML: %v", err)
		return
	}
	for i, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case i > 0:
			d.errorAt(startOf(doc.Body), "", "a second document: want one, without --- between")
		default:
			d.value("", doc.Body, reflect.ValueOf(to).Elem())
		}
	}
}

// maxFields bounds the fields of a file, because the parser's time grows with the square of the
// fields of one mapping: 20,000 take about two seconds.
const maxFields = 20_000

// reportTooMany reports whether the file has more than maxFields fields. If so, it adds an error.
func (d *decoder) reportTooMany(tokens token.Tokens) bool {
	fields := 0
	for _, t := range tokens {
		if t.Type == token.MappingValueType {
			fields++
		}
		if fields > maxFields {
			d.errorAt(t.Position, "", "too many fields: want at most %d in the file", maxFields)
			return true
		}
	}
	return false
}

// maxDepth bounds how deep values are nested, because the parser's memory grows with the square of
// the depth: 30,000 brackets take more than a gigabyte.
const maxDepth = 100

// reportTooDeep reports whether values are nested more than maxDepth levels deep. If so, it adds an
// error. The depth is that of the open brackets and of the columns where open blocks begin.
func (d *decoder) reportTooDeep(tokens token.Tokens) bool {
	var blocks []int // columns
	brackets := 0
	for i, t := range tokens {
		column := t.Position.Column
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets = max(0, brackets-1)
		case token.MappingValueType, token.SequenceEntryType, token.MappingKeyType:
			if t.Type == token.MappingValueType && i > 0 {
				column = tokens[i-1].Position.Column // of the key
			}
			if brackets == 0 {
				blocks = append(slices.DeleteFunc(blocks, func(open int) bool { return open >= column }), column)
			}
		}
		if brackets+len(blocks) > maxDepth {
			d.errorAt(t.Position, "", "nested too deep: want at most %d levels", maxDepth)
			return true
		}
	}
	return false
}

// reportSplitTexts reports texts with a colon inside brackets, such as [env:NAME]. In YAML env:NAME
// is one text, but the lexer splits it. found reports whether there is an error.
func (d *decoder) reportSplitTexts(tokens token.Tokens) (found bool) {
	plain := func(t *token.Token) bool {
		return t.Type == token.StringType || t.CharacterType == token.CharacterTypeMiscellaneous && t.Indicator == token.NotIndicator
	}
	for i := 1; i < len(tokens)-1; i++ {
		before, colon, after := tokens[i-1], tokens[i], tokens[i+1]
		if colon.Type == token.MappingValueType && plain(before) && plain(after) && after.Position.Offset == colon.Position.Offset+1 {
			d.errorAt(before.Position, "", "%s:%s: want quotes around a text with a colon inside, or a space after the colon", before.Value, strings.TrimSuffix(after.Value, ":"))
			found = true
		}
	}
	return found
}

// errorf adds an error about a path. If the file does not have the path, the error has the position
// of the nearest parent in the file. If the path is broken, errorf adds nothing.
func (d *decoder) errorf(path, format string, args ...any) {
	if d.broken(path) {
		return
	}
	at := &token.Position{Line: 1, Column: 1}
	for nearest := path; nearest != ""; nearest = parentOf(nearest) {
		if d.has(nearest) {
			at = d.positions[nearest]
			break
		}
	}
	d.errorAt(at, path, format, args...)
}

func (d *decoder) errorAt(at *token.Position, path, format string, args ...any) {
	d.errs = append(d.errs, &Error{d.file, at.Line, at.Column, path, fmt.Sprintf(format, args...)})
}

// fail adds an error about a node that cannot be decoded.
func (d *decoder) fail(node ast.Node, path, format string, args ...any) {
	d.undecoded[path] = true
	d.errorAt(startOf(node), path, format, args...)
}

// want adds an error if ok is false. It adds none if the file does not have the path.
func (d *decoder) want(ok bool, path, format string, args ...any) {
	if !ok && d.has(path) {
		d.errorf(path, format, args...)
	}
}

// wantOnMachine is like want, but adds the error to Config.MachineErrors.
func (d *decoder) wantOnMachine(ok bool, path, format string, args ...any) {
	before := len(d.errs)
	d.want(ok, path, format, args...)
	d.machineErrs, d.errs = append(d.machineErrs, d.errs[before:]...), d.errs[:before]
}

// wantFolder reports a folder that does not exist. It accepts an empty name.
func (d *decoder) wantFolder(path, folder string) {
	info, err := os.Stat(folder)
	d.wantOnMachine(folder == "" || err == nil && info.IsDir(), path, "%q: want a folder that exists", folder)
}

func (d *decoder) has(path string) bool { return d.positions[path] != nil }

// broken reports whether a path has an error already, because the path or a parent could not be
// decoded, or because the file probably has its field with a misspelled name.
func (d *decoder) broken(path string) bool {
	for ; path != ""; path = parentOf(path) {
		if d.undecoded[path] || d.probablyMeant[path] && !d.has(path) {
			return true
		}
	}
	return false
}

// errorFree reports whether there is no error about a path or below it.
func (d *decoder) errorFree(path string) bool {
	return !slices.ContainsFunc(d.errs, func(e *Error) bool {
		rest, below := strings.CutPrefix(e.Path, path)
		return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

func (d *decoder) value(path string, node ast.Node, to reflect.Value) {
	switch node.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.fail(node, path, "anchors, aliases and tags are not supported: write the value itself")
		return
	}
	if isAmbiguousNumber(node) {
		d.fail(node, path, "%s: write it in quotes, or as a decimal number without plus sign and leading zeros", scalarText(node))
		return
	}
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	text, isText := reflect.TypeAssert[encoding.TextUnmarshaler](to.Addr())
	switch {
	case isText:
		d.text(path, node, text)
	case to.Kind() == reflect.Struct && isScalar(node) && shortField(to.Type()) != "":
		name := shortField(to.Type())
		d.positions[join(path, name)] = d.positions[path]
		d.value(join(path, name), node, to.FieldByIndex(yamlFields(to.Type())[name]))
	case to.Kind() == reflect.Struct:
		d.structure(path, node, to)
	case to.Kind() == reflect.Map:
		d.mapping(path, node, to)
	case to.Kind() == reflect.Slice:
		d.sequence(path, node, to)
	case to.Kind() == reflect.Interface:
		if value := d.jsonValue(path, node); value != nil {
			to.Set(reflect.ValueOf(value))
		}
	default:
		d.scalar(path, node, to.Addr().Interface())
	}
}

func (d *decoder) structure(path string, node ast.Node, to reflect.Value) {
	fields := yamlFields(to.Type())
	d.eachEntry(path, node, func(name string, key *token.Position, value ast.Node) {
		index, ok := fields[name]
		if !ok {
			meant, hint := display.DidYouMean(name, slices.Sorted(maps.Keys(fields)))
			d.probablyMeant[join(path, meant)] = true
			d.errorAt(key, path, "unknown field %q: %s", name, hint)
			return
		}
		if path == "" {
			d.sections[name] = value.String()
		}
		d.value(join(path, name), value, to.FieldByIndex(index))
	})
}

// yamlFields returns the index of each field of a struct, by the field's name in a file.
func yamlFields(of reflect.Type) map[string][]int {
	fields := map[string][]int{}
	for _, field := range reflect.VisibleFields(of) {
		if name := field.Tag.Get("yaml"); name != "" {
			fields[name] = field.Index
		}
	}
	return fields
}

// shortField returns the name of the field with the tag short, or "" if there is none. A file can
// have the value of this field alone instead of a mapping with all fields.
func shortField(of reflect.Type) string {
	for _, field := range reflect.VisibleFields(of) {
		if _, ok := field.Tag.Lookup("short"); ok {
			return field.Tag.Get("yaml")
		}
	}
	return ""
}

func (d *decoder) mapping(path string, node ast.Node, to reflect.Value) {
	made := reflect.MakeMap(to.Type())
	d.eachEntry(path, node, func(name string, _ *token.Position, value ast.Node) {
		element := reflect.New(to.Type().Elem()).Elem()
		d.value(join(path, name), value, element)
		made.SetMapIndex(reflect.ValueOf(name), element)
	})
	if made.Len() > 0 {
		to.Set(made)
	}
}

// eachEntry calls do for every entry of a mapping. It reports duplicate keys.
func (d *decoder) eachEntry(path string, node ast.Node, do func(name string, key *token.Position, value ast.Node)) {
	mapping, ok := node.(ast.MapNode)
	if !ok {
		if _, empty := node.(*ast.NullNode); !empty {
			d.fail(node, path, "want a mapping, one \"name: value\" a line, not %s", describe(node))
		}
		return
	}
	lines := map[string]int{}
	for it := mapping.MapRange(); it.Next(); {
		at := it.Key().GetToken().Position
		name := it.Key().GetToken().Value
		node, _ := it.Key().(ast.Node)
		switch {
		case !isScalar(node):
			d.errorAt(at, path, "want a plain name as key, not %s", name)
		case lines[name] > 0:
			d.errorAt(at, path, "%q is there twice, first on line %d: keep one of them", name, lines[name])
		default:
			lines[name] = at.Line
			d.positions[join(path, name)] = reportedPosition(it.Value(), at)
			do(name, at, it.Value())
		}
	}
}

func (d *decoder) sequence(path string, node ast.Node, to reflect.Value) {
	if _, empty := node.(*ast.NullNode); empty {
		return
	}
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		d.fail(node, path, "want a list, [a, b] or one \"- item\" a line, not %s", describe(node))
		return
	}
	for i, item := range list.Values {
		inner := indexed(path, i)
		d.positions[inner] = startOf(item)
		element := reflect.New(to.Type().Elem()).Elem()
		d.value(inner, item, element)
		to.Set(reflect.Append(to, element))
	}
}

// scalar decodes a text, number, size, duration or boolean.
func (d *decoder) scalar(path string, node ast.Node, to any) {
	want := ""
	switch to := to.(type) {
	case *string:
		if isString(node) {
			*to = scalarText(node)
			return
		}
		want = "text (in quotes if it looks like a number)"
	case *int:
		if number, ok := node.(*ast.IntegerNode); ok {
			if n, err := strconv.Atoi(fmt.Sprint(number.Value)); err == nil {
				*to = n
				return
			}
		}
		want = "a whole number"
	case *int64:
		if isScalar(node) {
			n, err := parseSize(scalarText(node))
			if err != nil {
				d.fail(node, path, "%v", err)
			}
			*to = n
			return
		}
		want = "a size such as 100MB"
	case *bool:
		if b, ok := node.(*ast.BoolNode); ok {
			*to = b.Value
			return
		}
		want = "true or false"
	case *time.Duration:
		if value, err := duration.Parse(scalarText(node)); isScalar(node) && err == nil && value >= 0 {
			*to = value
			return
		}
		d.fail(node, path, "%s is not a duration: want numbers with units such as 500ms, 90s, 1h30m or 7d", describe(node))
		return
	}
	d.fail(node, path, "want %s, not %s", want, describe(node))
}

// text decodes a node by UnmarshalText. The text of a number or boolean is as in the file: "3" for
// cost: 3.
func (d *decoder) text(path string, node ast.Node, to encoding.TextUnmarshaler) {
	if !isScalar(node) {
		d.fail(node, path, "want text, not %s", describe(node))
		return
	}
	text := scalarText(node)
	if err := to.UnmarshalText([]byte(text)); err != nil {
		message := err.Error()
		if field, ok := errors.AsType[*throttle.FieldError](err); ok {
			message = field.Value + ": " + field.Want
		}
		d.fail(node, path, "%s", message)
	}
}

// jsonValue decodes a node of a payload into a map[string]any, a []any or a scalar. It reports a
// scalar that JSON does not have.
func (d *decoder) jsonValue(path string, node ast.Node) any {
	switch node.(type) {
	case ast.MapNode:
		var value map[string]any
		d.value(path, node, reflect.ValueOf(&value).Elem())
		return value
	case *ast.SequenceNode:
		var value []any
		d.value(path, node, reflect.ValueOf(&value).Elem())
		return value
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.NullNode:
		return node.(ast.ScalarNode).GetValue()
	}
	if !isString(node) {
		d.fail(node, path, "%s does not exist in JSON: write it as text, in quotes", describe(node))
	}
	return scalarText(node)
}

func isString(node ast.Node) bool {
	switch node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return true
	}
	return false
}

// ambiguousNumber matches numbers with a plus sign, a leading zero or another base than ten.
var ambiguousNumber = regexp.MustCompile(`^[-+]?0[0-9_]|^\+|^-?0[xob]`)

var digitsAlone = regexp.MustCompile(`^[-+]?[0-9][0-9_]*$`)

// isAmbiguousNumber reports whether a node without quotes is a number that YAML may take for another
// one: 010 is eight and +49 is 49. YAML takes 080 for text, because 8 is no octal digit. It counts as
// ambiguous, too, so that it does not depend on its digits whether a value is refused.
func isAmbiguousNumber(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return ambiguousNumber.MatchString(scalarText(node))
	case *ast.StringNode:
		plain := node.Token.Type == token.StringType
		return plain && digitsAlone.MatchString(node.Value) && ambiguousNumber.MatchString(node.Value)
	}
	return false
}

// isScalar reports whether a node is a single value and not null.
func isScalar(node ast.Node) bool {
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return true
	}
	return isString(node)
}

// scalarText returns a scalar as the file has it, without quotes.
func scalarText(node ast.Node) string {
	if block, ok := node.(*ast.LiteralNode); ok {
		return strings.TrimSuffix(block.Value.Value, "\n")
	}
	return node.GetToken().Value
}

// describe names a node for errors.
func describe(node ast.Node) string {
	switch node.(type) {
	case *ast.NullNode:
		return "nothing (write a value, or leave the line out)"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return scalarText(node)
	case *ast.IntegerNode, *ast.FloatNode:
		return "the number " + scalarText(node)
	}
	return fmt.Sprintf("%q", scalarText(node))
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

// CheckName checks the name of an app, a scope or a queue.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q: want 1 to 100 letters, digits, or _ . : -", name)
	}
	return nil
}

func (d *decoder) checkName(path, name string) {
	if err := CheckName(name); err != nil {
		d.errorf(path, "%v", err)
	}
}

func (d *decoder) checkReference(path, what, name string, names []string) {
	if !slices.Contains(names, name) {
		_, hint := display.DidYouMean(name, names)
		d.errorf(path, "no %s %q: %s", what, name, hint)
	}
}

func (d *decoder) checkMaxRetry(path string, n *int) {
	if n != nil && *n < 0 {
		d.errorf(path, "%d: want how often a failed job runs again, 0 for never", *n)
	} else if n != nil && *n > math.MaxInt32 {
		d.errorf(path, "%d: want at most %d, the most that asynq stores", *n, math.MaxInt32)
	}
}

// checkSeconds reports times that asynq cannot store. asynq stores whole seconds, and 0 means its
// default.
func (d *decoder) checkSeconds(path string, value time.Duration) {
	d.want(value >= time.Second && value%time.Second == 0, path, "%s: want whole seconds, at least 1s", duration.Exact(value))
}

// Error is an error in a config file, with its position and what to write instead.
type Error struct {
	File    string
	Line    int    // from 1
	Column  int    // from 1
	Path    string // such as limits.api-daily.rate; empty for the whole file
	Message string
}

// Error returns the position and the message on one line, like a compiler.
func (e *Error) Error() string {
	place := fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Path != "" {
		place += e.Path + ": "
	}
	return place + e.Message
}

// Errors are all errors in a config file, sorted by position.
type Errors []*Error

// maxLines bounds the text of Errors, because a file that is not a config has an error on every line.
const maxLines = 20

// Error returns one line for each of the first maxLines errors, and the number of the others.
func (e Errors) Error() string {
	var lines []string
	for _, err := range e[:min(len(e), maxLines)] {
		lines = append(lines, err.Error())
	}
	if more := len(e) - maxLines; more > 0 {
		lines = append(lines, fmt.Sprintf("%s: %d more errors", e[0].File, more))
	}
	return strings.Join(lines, "\n")
}

// errorsOf returns all errors of type E in err. err can be the result of errors.Join.
func errorsOf[E error](err error) (all []E) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range several.Unwrap() {
			all = append(all, errorsOf[E](each)...)
		}
	} else if one, ok := errors.AsType[E](err); ok {
		all = append(all, one)
	}
	return all
}

// reportedPosition returns the position that errors about a value have: the position of a scalar,
// or the position of the key of a mapping or list.
func reportedPosition(value ast.Node, key *token.Position) *token.Position {
	if _, ok := value.(ast.ScalarNode); ok {
		return startOf(value)
	}
	return key
}

// startOf returns the position of a node's first character. The token of a block mapping is its
// first colon, so startOf returns the position of its first key.
func startOf(node ast.Node) *token.Position {
	if mapping, ok := node.(*ast.MappingNode); ok && !mapping.IsFlowStyle && len(mapping.Values) > 0 {
		return mapping.Values[0].Key.GetToken().Position
	}
	return node.GetToken().Position
}

// join appends a key to a path. It quotes a key that has a dot or a bracket.
func join(path, key string) string {
	if strings.ContainsAny(key, ".[]") {
		key = fmt.Sprintf("%q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// parentOf returns the path without its last step. It returns "" for a path of one step.
func parentOf(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
