package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/scheduler"
)

const description = "../../../docs/openapi.yaml"

type object = map[string]any

var readDescription = sync.OnceValues(func() (doc object, err error) {
	return doc, yaml.Unmarshal([]byte(descriptionText), &doc)
})

var descriptionText string

// described returns the value at a path of the description.
func described(t *testing.T, path ...string) any {
	t.Helper()
	if descriptionText == "" {
		descriptionText = proctest.ReadFile(t, description)
	}
	doc, err := readDescription()
	if err != nil {
		t.Fatal(err)
	}
	var value any = doc
	for _, name := range path {
		fields, _ := value.(object)
		if value = fields[name]; value == nil {
			t.Fatalf("%s has no %s", description, strings.Join(path, " "))
		}
	}
	return value
}

func describedResponses(t *testing.T) object {
	t.Helper()
	return described(t, "paths", "/v1/jobs", "post", "responses").(object)
}

// matchesDescription checks that a response has the headers and the form that the description has for
// its status.
func matchesDescription(t *testing.T, resp *http.Response, body []byte) {
	t.Helper()
	of, ok := describedResponses(t)[strconv.Itoa(resp.StatusCode)].(object)
	if !ok {
		t.Errorf("%s has no status %d", description, resp.StatusCode)
		return
	}
	headers, _ := of["headers"].(object)
	for _, name := range []string{"Allow", "Retry-After", "WWW-Authenticate"} {
		if _, described := headers[name]; described != (resp.Header.Get(name) != "") {
			t.Errorf("the header %s of status %d is %q, and described: %t", name, resp.StatusCode, resp.Header.Get(name), described)
		}
	}
	kind := resp.Header.Get("Content-Type")
	schema, _ := of["content"].(object)[kind].(object)
	if schema == nil {
		t.Errorf("status %d has no content %s in %s", resp.StatusCode, kind, description)
		return
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		t.Error(err)
	}
	if err := matches(t, schema["schema"].(object), value); err != nil {
		t.Errorf("status %d: %v: %s", resp.StatusCode, err, body)
	}
}

// matches returns why a value of JSON does not match a schema. It knows the keywords of the description.
func matches(t *testing.T, schema object, value any) error {
	t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		return matches(t, described(t, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).(object), value)
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, value) {
		return fmt.Errorf("%v is none of %v", value, enum)
	}
	switch v := value.(type) {
	case string, float64:
		if want := map[bool]string{true: "string", false: "integer"}[reflect.TypeOf(v).Kind() == reflect.String]; schema["type"] != want {
			return fmt.Errorf("%v is a %s, want %v", v, want, schema["type"])
		}
	case []any:
		for _, item := range v {
			if err := matches(t, schema["items"].(object), item); err != nil {
				return err
			}
		}
	case object:
		for _, name := range schema["required"].([]any) {
			if _, has := v[name.(string)]; !has {
				return fmt.Errorf("there is no %s", name)
			}
		}
		for name, field := range v {
			of, ok := schema["properties"].(object)[name].(object)
			if !ok {
				return fmt.Errorf("unknown field %s", name)
			}
			if err := matches(t, of, field); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	default:
		return fmt.Errorf("%v has an unknown type", value)
	}
	return nil
}

// TestDescription_Fields: the description has the fields of the structs, with their types.
func TestDescription_Fields(t *testing.T) {
	duration, text := object{"$ref": "#/components/schemas/Duration"}, object{"type": "string"}
	types := map[reflect.Type]object{
		reflect.TypeFor[string](): text, reflect.TypeFor[status](): text, reflect.TypeFor[*scheduler.PriorityLevel](): text,
		reflect.TypeFor[int](): {"type": "integer"}, reflect.TypeFor[*int](): {"type": "integer"}, reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[time.Duration](): duration, reflect.TypeFor[time.Time](): {"type": "string", "format": "date-time"},
		reflect.TypeFor[[]string](): {"type": "array"}, reflect.TypeFor[[]jobAnswer](): {"type": "array"},
	}
	for name, of := range map[string]reflect.Type{"Job": reflect.TypeFor[jobspec.Job](), "Answer": reflect.TypeFor[answer](), "JobAnswer": reflect.TypeFor[jobAnswer]()} {
		properties := described(t, "components", "schemas", name, "properties").(object)
		var fields, required []string
		for _, f := range reflect.VisibleFields(of) {
			tag := f.Tag.Get("json")
			if tag == "" || tag == "-" {
				continue
			}
			field, rest, _ := strings.Cut(tag, ",")
			fields = append(fields, field)
			if rest == "" && name != "Job" {
				required = append(required, field)
			}
			property, _ := properties[field].(object)
			for key, want := range types[f.Type] {
				if property[key] != want {
					t.Errorf("%s of %s.%s is %v, want %v", key, name, field, property[key], want)
				}
			}
			if types[f.Type] == nil {
				t.Errorf("%s.%s has the type %s: want it in types", name, field, f.Type)
			}
		}
		if got := slices.Sorted(maps.Keys(properties)); !slices.Equal(got, slices.Sorted(slices.Values(fields))) {
			t.Errorf("%s describes the fields %q of %s, want %q", description, got, name, fields)
		}
		if got := fmt.Sprint(described(t, "components", "schemas", name, "required")); name != "Job" && got != fmt.Sprint(required) {
			t.Errorf("%s requires %s of %s, want %s", description, got, name, required)
		}
	}
	for _, priority := range described(t, "components", "schemas", "Job", "properties", "priority", "enum").([]any) {
		if _, err := jobspec.Parse([]byte(fmt.Sprintf(`{"type":"t","priority":%q}`, priority))); err != nil {
			t.Error(err)
		}
	}
	if got, want := described(t, "components", "schemas", "JobAnswer", "properties", "status", "enum"), []any{string(enqueued), string(thereAlready), string(bad), string(unknown)}; !reflect.DeepEqual(got, want) {
		t.Errorf("the statuses of jobs are %v, want %v", got, want)
	}
}

// TestDescription_Limits: the description and the page have one path with one method, and the limits
// of a request.
func TestDescription_Limits(t *testing.T) {
	if paths := described(t, "paths").(object); len(paths) != 1 || len(paths[Prefix+"jobs"].(object)) != 1 {
		t.Errorf("the paths are %v", paths)
	}
	limits := fmt.Sprintf("at most %d jobs and %d MiB", maxJobs, maxBody>>20)
	for _, text := range []string{described(t, "paths", "/v1/jobs", "post", "description").(string), strings.ReplaceAll(proctest.ReadFile(t, "../../../docs/configuration.md"), "\n  ", " ")} {
		if !strings.Contains(strings.ReplaceAll(text, "has at most", "at most"), limits) {
			t.Errorf("there is no %q in %.100q", limits, text)
		}
	}
	if text := described(t, "paths", "/v1/jobs", "post", "description").(string); !strings.Contains(text, fmt.Sprintf("%d seconds to send", int(sendTimeout.Seconds()))) {
		t.Errorf("there is no sendTimeout in %q", text)
	}
}
