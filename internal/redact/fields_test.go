package redact

import "testing"

// TestRedactor_Payload: a payload without secrets is the same bytes, and one with some is
// still JSON, with its numbers as they were written.
func TestRedactor_Payload(t *testing.T) {
	r, err := New([]string{"card"})
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]string{
		`{ "url": "https://example.com/?a=1&b=<2>", "id": 12345678901234567890 }`: `{ "url": "https://example.com/?a=1&b=<2>", "id": 12345678901234567890 }`,
		`{"card":"4111","id":12345678901234567890,"url":"https://h/?a=1&b=2"}`:    `{"card":"•••","id":12345678901234567890,"url":"https://h/?a=1&b=2"}`,
		`{"headers":{"Authorization":"Bearer abcdefgh"}}`:                         `{"headers":{"Authorization":"•••"}}`,
		`{"url":"https://h/?api_key=hunter2"}`:                                    `{"url":"https://h/?api_key=•••"}`,
		`password: hunter2`:                                                       `password: •••`,
		`{"card":"4111"} {}`:                                                      `{"card":•••} {}`,
		``:                                                                        ``,
	} {
		if got := r.Payload([]byte(payload)); got != want {
			t.Errorf("%s is shown as %s, want %s", payload, got, want)
		}
	}
}
