package warc

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, time.March, 1, 12, 0, 0, 123456789, time.FixedZone("", 3600))

func exchange(t *testing.T) Exchange {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "https://h.example/a?b=1#c", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User-Agent", "headgate")
	req.Header.Set("Authorization", "Bearer hidden")
	req.Header.Set("Cookie", "hidden=1")
	return Exchange{
		Request: req, At: at, Address: "192.0.2.1",
		Response: &http.Response{StatusCode: 200, Uncompressed: true, Header: http.Header{
			"Content-Type": {"text/html"}, "Content-Encoding": {"gzip"}, "Transfer-Encoding": {"chunked"}, "Content-Length": {"7"},
		}},
		Body: []byte("<p>Hi\r\n\r\n\x00"),
	}
}

// read reads the record that begins at a position, by that alone.
func read(t *testing.T, file []byte, p Position) (version string, header textproto.MIMEHeader, block string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(file[p.Offset:]))
	if err != nil {
		t.Fatal(err)
	}
	z.Multistream(false)
	r := textproto.NewReader(bufio.NewReader(z))
	version, err = r.ReadLine()
	if err != nil {
		t.Fatal(err)
	}
	header, err = r.ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r.R)
	if err != nil {
		t.Fatal(err)
	}
	block, ok := strings.CutSuffix(string(rest), "\r\n\r\n")
	if !ok || header.Get("Content-Length") != fmt.Sprint(len(block)) || header.Get("WARC-Block-Digest") != digest([]byte(block)) {
		t.Errorf("record %v\n%q: its end, length or digest is wrong", header, rest)
	}
	return version, header, block
}

// members is the exchange as it stands behind so many bytes, and where the answer is.
func members(e Exchange, behind int64) ([]byte, Position, error) {
	records, err := e.records()
	if err != nil {
		return nil, Position{}, err
	}
	return pack(records, behind)
}

// positions finds where the gzip members of a file are.
func positions(t *testing.T, file []byte) []Position {
	t.Helper()
	var found []Position
	in := bytes.NewReader(file)
	for in.Len() > 0 {
		start := int64(len(file) - in.Len())
		z, err := gzip.NewReader(in)
		if err != nil {
			t.Fatal(err)
		}
		z.Multistream(false)
		if _, err := io.Copy(io.Discard, z); err != nil {
			t.Fatal(err)
		}
		found = append(found, Position{Offset: start})
	}
	return found
}

// begun is the beginning of a file.
func begun(t testing.TB) []byte {
	t.Helper()
	records, err := info("a.warc.gz", at, []Field{{"software", "headgate"}})
	if err != nil {
		t.Fatal(err)
	}
	file, _, err := pack(records, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRecords(t *testing.T) {
	file := begun(t)
	written, got, err := members(exchange(t), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	file = append(file, written...)
	all := positions(t, file)
	if len(all) != 3 || all[1].Offset != got.Offset {
		t.Fatalf("members at %+v, and the answer at %+v; want 3, the answer's second", all, got)
	}
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Type: text/html\r\n\r\n<p>Hi\r\n\r\n\x00"
	want := []struct{ kind, contentType, uri, block string }{
		{"warcinfo", "application/warc-fields", "", "software: headgate\r\n"},
		{"response", "application/http;msgtype=response", "https://h.example/a?b=1", answer},
		{"request", "application/http;msgtype=request", "https://h.example/a?b=1", "POST /a?b=1 HTTP/1.1\r\nHost: h.example\r\nUser-Agent: headgate\r\n\r\n"},
	}
	for i, p := range all {
		version, h, block := read(t, file, p)
		if version != "WARC/1.1" || h.Get("WARC-Type") != want[i].kind || h.Get("Content-Type") != want[i].contentType ||
			h.Get("WARC-Target-URI") != want[i].uri || h.Get("WARC-Date") != "2026-03-01T11:00:00.123456Z" || block != want[i].block {
			t.Errorf("record %d: %s %v\n%q\nwant %+v", i, version, h, block, want[i])
		}
		if i > 1 && h.Get("WARC-Concurrent-To") != got.ID {
			t.Errorf("record %d is of %q, want %q", i, h.Get("WARC-Concurrent-To"), got.ID)
		}
	}
	_, h, _ := read(t, file, got)
	if h.Get("WARC-IP-Address") != "192.0.2.1" || h.Get("WARC-Payload-Digest") != digest([]byte("<p>Hi\r\n\r\n\x00")) || h.Get("WARC-Record-ID") != got.ID {
		t.Errorf("the answer's header is %v", h)
	}
}

func TestDigest(t *testing.T) {
	// SHA-1 of nothing, in base 32, as every archive has it.
	if got := digest(nil); got != "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ" {
		t.Error(got)
	}
}

func TestTruncated(t *testing.T) {
	e := exchange(t)
	e.Truncated = "length"
	file, got, err := members(e, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, h, _ := read(t, file, got); h.Get("WARC-Truncated") != "length" {
		t.Errorf("header %v", h)
	}
}

// What was archived before is referred to: by the record that has it, however often it is
// met again, and in the words of WARC 1.1, 6.7.
func TestRevisits(t *testing.T) {
	var file []byte
	var before Capture
	for _, tt := range []struct {
		name, body, kind, profile, truncated, block string
		status                                      int
	}{
		{"new", "<p>one", "response", "", "", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<p>one", 200},
		{"the same", "<p>one", "revisit", identical, "length", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", 200},
		{"not modified", "", "revisit", notModified, "", "HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n", 304},
		{"another", "<p>two", "response", "", "", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<p>two", 200},
		{"not modified since", "", "revisit", notModified, "", "HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n", 304},
	} {
		e := exchange(t)
		e.At, e.Body, e.Before = e.At.Add(time.Duration(len(file))*time.Second), []byte(tt.body), before
		e.Response = &http.Response{StatusCode: tt.status, Header: http.Header{}}
		if tt.status == http.StatusNotModified {
			e.Response.Header = http.Header{"Etag": {"x"}, "Content-Length": {"6"}}
		}
		written, got, err := members(e, int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		file = append(file, written...)
		if tt.kind == "response" {
			before = Capture{got.ID, e.At, digest(e.Body)}
		}
		_, h, block := read(t, file, got)
		want := map[string]string{
			"WARC-Type": tt.kind, "WARC-Profile": tt.profile, "WARC-Truncated": tt.truncated, "WARC-Payload-Digest": before.Digest,
			"WARC-Target-URI": "https://h.example/a?b=1", "WARC-Record-ID": got.ID, "WARC-Date": date(e.At),
		}
		if tt.kind == "revisit" {
			want["WARC-Refers-To"], want["WARC-Refers-To-Date"], want["WARC-Refers-To-Target-URI"] = before.ID, date(before.At), "https://h.example/a?b=1"
		}
		for _, name := range []string{"WARC-Refers-To", "WARC-Refers-To-Date", "WARC-Refers-To-Target-URI", "WARC-Type", "WARC-Profile", "WARC-Truncated", "WARC-Payload-Digest", "WARC-Target-URI", "WARC-Record-ID", "WARC-Date"} {
			if h.Get(name) != want[name] {
				t.Errorf("%s: %s %q, want %q", tt.name, name, h.Get(name), want[name])
			}
		}
		if block != tt.block || got.Capture != before {
			t.Errorf("%s: %q, to be referred to as %+v; want %q and %+v", tt.name, block, got.Capture, tt.block, before)
		}
	}
}

func TestNothingIsWrittenOfABadExchange(t *testing.T) {
	tests := map[string]func(*Exchange){
		"a password in the URL": func(e *Exchange) { e.Request.URL, _ = e.Request.URL.Parse("https://u:p@h.example/") },
		"two lines of address":  func(e *Exchange) { e.Address = "1\r\n2" },
	}
	for _, field := range []Field{{"a", "b\r\nWARC-Type: x"}, {"a:b", "c"}, {"", "c"}} {
		if records, err := info("x.warc.gz", at, []Field{field}); err == nil {
			t.Errorf("%q: %+v, want an error", field, records)
		}
	}
	for name, spoil := range tests {
		e := exchange(t)
		spoil(&e)
		if file, got, err := members(e, 0); err == nil || len(file) > 0 || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: at %+v, %v, %d bytes; want an error and none", name, got, err, len(file))
		}
	}
}
