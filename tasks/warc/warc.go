// Package warc writes web archives: WARC 1.1 (ISO 28500:2017), each record a
// gzip member of its own, so that a reader can start at any record and files
// can be joined. Whoever replays archives of the web reads it.
//
// A [Folder] makes the files, and keeps them whole through crashes and full disks. It
// does not read archives: that a body was archived before is for the caller to know,
// and becomes a revisit record.
package warc

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha1"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Position is where a record is: a reader that starts there reads one gzip member.
type Position struct {
	Offset int64  // of that, in bytes
	ID     string // its WARC-Record-ID
	// Capture is what has the payload: this record, or that which a revisit refers to.
	Capture Capture
}

// Capture is a record of an answer with its body, as later ones refer to it.
type Capture struct {
	ID     string    `json:"id"`     // its WARC-Record-ID
	At     time.Time `json:"at"`     // its WARC-Date
	Digest string    `json:"digest"` // its WARC-Payload-Digest
}

// Exchange is a request and its answer, as a crawler saw them.
type Exchange struct {
	// Request is what was asked: its Method, URL, Host and Header are archived.
	Request *http.Request
	// Response is what was answered, of which StatusCode and Header are archived.
	Response *http.Response
	// Body is the whole body of the answer, without transfer coding and
	// unpacked if the transport did that, which Response.Uncompressed says.
	// Response.Body is not looked at.
	Body []byte
	// At is when the request was sent, to the microsecond.
	At time.Time
	// Address is the IP address that answered, without a port. Empty means not
	// known, as behind a proxy.
	Address string
	// Truncated is why Body is not whole: "length", "time" or "disconnect", the
	// standard's words. Empty means that it is. It is not checked.
	Truncated string
	// Before is an earlier capture of the same URL, in whatever file. If the answer is 304 or
	// Body the same, the answer becomes a revisit record, which refers to that and has no
	// body. The zero value means that there is none.
	Before Capture
}

// Field is a line of a warcinfo record. A name may come more than once.
// A name with a colon, and either with a line break, is refused.
type Field struct{ Name, Value string }

// info is the record that a file should begin with: who made it, with fields such as
// "software", "format" and "description". The file's name is for readers who get it
// without.
func info(filename string, at time.Time, fields []Field) ([]record, error) {
	block, err := fieldBlock(fields)
	r := record{kind: "warcinfo", id: newID(), at: at, contentType: "application/warc-fields", block: block}
	r.add("WARC-Filename", filename)
	return []record{r}, err
}

// records are the answer's, and the request's, which refers to that. They are made before
// the first is written, so that what cannot be archived leaves no part of itself.
func (e Exchange) records() ([]record, error) {
	target, err := targetOf(e.Request.URL)
	if err != nil {
		return nil, err
	}
	response := e.response(target)
	request := record{kind: "request", id: newID(), at: e.At, contentType: "application/http;msgtype=request", block: e.requestHead()}
	request.add("WARC-Target-URI", target)
	request.add("WARC-IP-Address", e.Address)
	request.add("WARC-Concurrent-To", response.id)
	return []record{response, request}, nil
}

// The profiles of revisit records.
const (
	notModified = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
	identical   = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
)

func (e Exchange) response(target string) record {
	capture, profile, truncated := Capture{newID(), e.At, digest(e.Body)}, "", e.Truncated
	r := record{kind: "response", id: capture.ID, at: e.At, contentType: "application/http;msgtype=response"}
	switch {
	case e.Before.ID == "":
	case e.Response.StatusCode == http.StatusNotModified:
		profile = notModified
	case capture.Digest == e.Before.Digest:
		profile, truncated = identical, "length" // the standard's word for a body that is not there, too
	}
	// The body as it is here, not as it was sent: the head is made to fit it.
	r.block = e.responseHead()
	if profile == "" {
		r.block = append(r.block, e.Body...)
	} else {
		r.kind, capture = "revisit", e.Before
		r.add("WARC-Profile", profile)
		r.add("WARC-Refers-To", capture.ID)
		r.add("WARC-Refers-To-Target-URI", target)
		r.add("WARC-Refers-To-Date", date(capture.At))
	}
	r.capture = capture
	r.add("WARC-Target-URI", target)
	r.add("WARC-IP-Address", e.Address)
	r.add("WARC-Payload-Digest", capture.Digest)
	r.add("WARC-Truncated", truncated)
	return r
}

func date(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000Z") }

// targetOf is the URL as the archive names it: without its fragment, which is not sent.
// One with a user or a password is refused.
func targetOf(u *url.URL) (string, error) {
	if u.User != nil {
		return "", errors.New("URL with user or password: want it without in an archive")
	}
	plain := *u
	plain.Fragment, plain.RawFragment = "", ""
	return plain.String(), nil
}

// secretHeaders are those of requests that are not written: archives are made to be
// passed on. What else is a secret, such as a key in a header of a name of its own,
// nobody can know here.
var secretHeaders = map[string]bool{"Authorization": true, "Cookie": true, "Proxy-Authorization": true}

// requestHead is the request line and the headers as HTTP/1.1 has them, whatever
// version was spoken, but for those that carry secrets. What the transport adds by
// itself, such as Accept-Encoding, is not among the Request's headers, so it is
// missing here.
func (e Exchange) requestHead() []byte {
	var b bytes.Buffer
	method, host := cmp.Or(e.Request.Method, http.MethodGet), cmp.Or(e.Request.Host, e.Request.URL.Host)
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, e.Request.URL.RequestURI(), host)
	_ = e.Request.Header.WriteSubset(&b, secretHeaders) // a Buffer takes all
	b.WriteString("\r\n")
	return b.Bytes()
}

// responseHead is the answer's status and header as HTTP/1.1 has them. The
// codings that are gone from the body go from the header too, or a reader would
// try to undo them, and the length is that of the body as it is here. The reason is
// the usual one of the status, not the server's own.
func (e Exchange) responseHead() []byte {
	var b bytes.Buffer
	h := e.Response.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Del("Transfer-Encoding")
	if e.Response.Uncompressed {
		h.Del("Content-Encoding")
	}
	h.Set("Content-Length", fmt.Sprint(len(e.Body)))
	if e.Response.StatusCode == http.StatusNotModified { // which has none, whatever it says
		h.Del("Content-Length")
	}
	// HTTP/1.1 whatever was spoken, as in the request: HTTP/2 has no form in text.
	status := e.Response.StatusCode
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	// Names come in the order of the alphabet: the server's own order is not kept.
	_ = h.Write(&b)
	b.WriteString("\r\n")
	return b.Bytes()
}

// fieldBlock is application/warc-fields: a line for each. It refuses what would end a
// line or a name early, and so say something else than it was given.
func fieldBlock(fields []Field) ([]byte, error) {
	var b bytes.Buffer
	for _, f := range fields {
		if f.Name == "" || strings.ContainsAny(f.Name, ":\r\n") || strings.ContainsAny(f.Value, "\r\n") {
			return nil, fmt.Errorf("field %q: %q: want a name and a value of one line", f.Name, f.Value)
		}
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	return b.Bytes(), nil
}

// digest is a hash in the form that archives of the web have used since their
// beginning, and their tools compare: SHA-1 in base 32. It finds equal bodies; it
// keeps nobody from forging one.
func digest(block []byte) string {
	sum := sha1.Sum(block)
	return "sha1:" + base32.StdEncoding.EncodeToString(sum[:])
}

// newID is a record ID that no other record has, in any file: archives are joined.
func newID() string { return "<urn:uuid:" + uuid.NewString() + ">" }

// record is one of the file's: a header of its own, and a block, which for an answer
// or a request is that message with its own header again.
type record struct {
	kind        string
	id          string
	at          time.Time
	contentType string
	fields      []Field // besides those that every record has
	block       []byte
	capture     Capture
}

// add adds a field, unless it is empty: the format has no fields without a value.
func (r *record) add(name, value string) {
	// A blank at either end is no part of a value, in WARC as in HTTP.
	if value = textproto.TrimString(value); value != "" {
		r.fields = append(r.fields, Field{name, value})
	}
}

// pack is records as they stand in a file, behind so many bytes, and where the first of
// them does. Each is a whole gzip stream, and a file of many is one that gzip itself
// unpacks, to the records one after the other.
func pack(records []record, behind int64) ([]byte, Position, error) {
	var b bytes.Buffer
	for _, r := range records {
		z := gzip.NewWriter(&b)
		if err := errors.Join(r.writeTo(z), z.Close()); err != nil {
			return nil, Position{}, err
		}
	}
	return b.Bytes(), Position{behind, records[0].id, records[0].capture}, nil
}

// writeTo writes the record: its headers, an empty line, the block, two more. The
// block may have anything in it, as Content-Length says where it ends.
func (r *record) writeTo(to io.Writer) error {
	fields, err := fieldBlock(slices.Concat([]Field{
		{"WARC-Type", r.kind},
		{"WARC-Record-ID", r.id},
		{"WARC-Date", date(r.at)},
		{"Content-Type", r.contentType},
		{"Content-Length", fmt.Sprint(len(r.block))},
		{"WARC-Block-Digest", digest(r.block)},
	}, r.fields))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, "WARC/1.1\r\n%s\r\n%s\r\n\r\n", fields, r.block)
	return err
}
