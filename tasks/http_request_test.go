package tasks

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseHTTPRequest(t *testing.T) {
	tests := []struct {
		name, payload string
		want          HTTPRequest
	}{
		{"null is left out", `{"url":"http://h","method":null,"timeout":null,"expect":null}`, HTTPRequest{URL: "http://h"}},
		{"IPv6 and port", ` {"url":"https://[::1]:65535/?a=1&b=2"} `, HTTPRequest{URL: "https://[::1]:65535/?a=1&b=2"}},
		{
			"everything",
			`{"method":"PUT","url":"HTTPS://h/é","headers":{"X-A":"1\t2"},"body":"ä","timeout":"1m30s","expect":[200,599]}`,
			HTTPRequest{
				Method: "PUT", URL: "HTTPS://h/é", Headers: map[string]string{"X-A": "1\t2"},
				Body: "ä", Timeout: 90 * time.Second, Expect: []int{200, 599},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse[HTTPRequest]([]byte(tt.payload))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestHTTPRequest_ParseErrors(t *testing.T) {
	const fields = "method, url, headers, body, timeout, expect, redirects, hops, keep_headers, save, max_body"
	long := strings.Repeat("é", 50)
	tests := []struct{ payload, want string }{
		{``, `payload is not JSON: unexpected end of JSON input`},
		{`{"url":"http://h"} {}`, `payload is not JSON: invalid character '{' after top-level value`},
		{"{\"url\":\"http://h/\xff\"}", `payload is not UTF-8: want JSON text`},
		{`["http://h"]`, `payload ["http://h"]: want a JSON object with the fields ` + fields},
		{`null`, `payload null: want a JSON object with the fields ` + fields},
		{`{"url":"http://h","retries":3}`, `unknown field "retries": want one of ` + fields},
		{`{"URL":"http://h"}`, `unknown field "URL": want one of ` + fields},
		{`{"url":"http://h","url":"http://i"}`, `field "url" is given twice: want it once`},
		{`{"url":7}`, `url 7: want a text such as "https://example.com/path"`},
		{`{"method":["GET"]}`, `method ["GET"]: want a text such as "GET"`},
		{`{"headers":{"Accept":1}}`, `headers {"Accept":1}: want an object of texts such as {"Accept": "text/html"}`},
		{`{"body":{"a":1}}`, `body {"a":1}: want a text`},
		{`{"body":["` + long + `"]}`, `body ["` + long[:58] + `…: want a text`},
		{`{"redirects":"requeue"}`, `redirects "requeue": want true or false`},
		{`{"timeout":10}`, `timeout 10: want a text such as "10s"`},
		{`{"timeout":"10"}`, `timeout "10": want a text such as "10s"`},
		{`{"expect":200}`, `expect 200: want a list of statuses such as [200, 404]`},
		{`{"expect":["200"]}`, `expect ["200"]: want a list of statuses such as [200, 404]`},
		{`{}`, `url is missing: want an absolute URL such as https://example.com/path`},
	}
	for _, tt := range tests {
		if _, err := parse[HTTPRequest]([]byte(tt.payload)); err == nil || err.Error() != tt.want {
			t.Errorf("%s\ngot  %v\nwant %s", tt.payload, err, tt.want)
		}
	}
}

func TestHTTPRequest_Validate(t *testing.T) {
	header := func(name, value string) HTTPRequest {
		return HTTPRequest{URL: "http://h", Headers: map[string]string{name: value}}
	}
	const (
		want  = "want an absolute URL such as https://example.com/path"
		bare  = "want it without user and password: use a header Authorization with a secret"
		below = "want a path such as pages/ or pages/home.html, without .. and not from the root"
		ref   = "want a secret as ${env:NAME} or ${file:/path}"
	)
	tests := []struct {
		call HTTPRequest
		want string
	}{
		{HTTPRequest{URL: "/path"}, `url "/path": want it to begin with http:// or https://`},
		{HTTPRequest{URL: "file:///etc/passwd"}, `url "file:///etc/passwd": want it to begin with http:// or https://`},
		{HTTPRequest{URL: "http://u:secret@h/"}, `url "http://u:xxxxx@h/": ` + bare},
		{HTTPRequest{URL: "http://u:secret@h:x/"}, `url is not a URL: invalid port ":x" after host: ` + want},
		{HTTPRequest{URL: "http:///path"}, `url "http:///path" has no host: ` + want},
		{HTTPRequest{URL: "http:h"}, `url "http:h" has no host: ` + want},
		{HTTPRequest{URL: "http://h:0/"}, `url "http://h:0/": want a port from 1 to 65535`},
		{HTTPRequest{URL: "http://h/%zz"}, `url is not a URL: invalid URL escape "%zz": ` + want},
		{HTTPRequest{URL: "http://h", Method: "GET /"}, `method "GET /": want an HTTP method such as GET or POST`},
		{HTTPRequest{URL: "http://h", Timeout: -time.Second}, `timeout -1s: want a duration above zero, or zero for 30s`},
		{HTTPRequest{URL: "http://h", Expect: []int{200, 101}}, `expect 101: want HTTP statuses from 200 to 599`},
		{HTTPRequest{URL: "http://h", Expect: []int{600}}, `expect 600: want HTTP statuses from 200 to 599`},
		{HTTPRequest{URL: "http://h", Body: "\xff"}, `body of 1 bytes is not UTF-8: want text, because payloads are JSON`},
		{HTTPRequest{URL: "http://h", Hops: 6}, `hops 6: want from 0 to 5 redirects`},
		{HTTPRequest{URL: "http://h", KeepHeaders: []string{"E Tag"}}, `keep_headers: name "E Tag": want letters, digits and hyphens such as ETag`},
		{HTTPRequest{URL: "http://h", MaxBody: -1}, `max_body -1: want a number of bytes above zero`},
		{HTTPRequest{URL: "http://h", MaxBody: 1<<20 + 1}, `max_body 1048577: want at most 1048576 bytes in the result; a longer body can be saved to a file`},
		{HTTPRequest{URL: "http://h", Save: "../a"}, `save "../a": ` + below},
		{HTTPRequest{URL: "http://h", Save: "/etc/passwd"}, `save "/etc/passwd": ` + below},
		{HTTPRequest{URL: "http://h", Save: `a\b`}, `save "a\\b": ` + below},
		{HTTPRequest{URL: "http://h", Save: "a\x00"}, `save "a\x00": ` + below},
		{HTTPRequest{URL: "http://h/?k=${env:}"}, `url: ` + ref},
		{HTTPRequest{URL: "http://h/?k=${env:A"}, `url: ` + ref},
		{HTTPRequest{URL: "http://${env:A}/"}, `url: secret ${env:A}: want secrets only in the path and the query`},
		{header("X-A", "${file:/a"), `headers: X-A: ` + ref},
		{header("host", "${env:A}"), `headers: Host: want it without a secret`},
		{header("X A", "x"), `headers: name "X A": want letters, digits and hyphens such as Content-Type`},
		{header("X-A", "1\r\nX-B: 2"), `headers: X-A "1\r\nX-B: 2": want one line of text`},
		{header("X-A", "\xff"), `headers: X-A "\xff": want one line of text`},
		{header("content-length", "3"), `headers: "content-length" follows from the body: leave it out`},
		{
			HTTPRequest{URL: "http://h", Headers: map[string]string{"accept": "a", "Accept": "b"}},
			`headers: "Accept" and "accept" are the same header: want one of them`,
		},
	}
	for _, tt := range tests {
		if err := tt.call.Validate(); err == nil || err.Error() != tt.want {
			t.Errorf("%+v\ngot  %v\nwant %s", tt.call, err, tt.want)
		}
		if task, err := NewHTTPRequest(tt.call); err == nil {
			t.Errorf("NewHTTPRequest(%+v) = %s, want an error", tt.call, task.Payload())
		}
	}
}
