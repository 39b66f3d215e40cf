package tasks

import (
	"errors"
	"testing"
)

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
	if want := `type "mail:send": not a built-in task type: want crawl:fetch, http:request or exec:NAME`; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}
