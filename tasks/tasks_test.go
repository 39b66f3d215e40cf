package tasks

import (
	"errors"
	"slices"
	"testing"

	"github.com/hibiken/asynq"
)

func TestTypesAreSorted(t *testing.T) {
	names := Types()
	if len(names) == 0 || !slices.IsSorted(names) {
		t.Errorf("Types() = %q, want names in order", names)
	}
}

func TestRegisterAddsEveryType(t *testing.T) {
	mux := asynq.NewServeMux()
	Register(mux)
	for _, name := range Types() {
		if _, pattern := mux.Handler(asynq.NewTask(name, nil)); pattern != name {
			t.Errorf("the mux handles %s with pattern %q, want its own", name, pattern)
		}
	}
}

func TestValidateByType(t *testing.T) {
	good := []byte(`{"url": "https://example.com/"}`)
	if err := Validate(TypeHTTPRequest, good); err != nil {
		t.Errorf("a good payload: %v", err)
	}
	if err := Validate(TypeHTTPRequest, []byte(`{}`)); err == nil || errors.Is(err, ErrUnknownType) {
		t.Errorf("a bad payload: got %v, want an error about the payload", err)
	}
	err := Validate("mail:send", good)
	if !errors.Is(err, ErrUnknownType) {
		t.Fatalf("an unknown type: got %v, want ErrUnknownType", err)
	}
	if want := `type "mail:send": not a built-in task type: want crawl:fetch or exec:command or http:request`; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}
