package config

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/tasks"
)

func handler(t *testing.T, text string) *tasks.HTTPHandler {
	t.Helper()
	c := parse(t, text)
	h, err := c.HTTP.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHTTPHandler(t *testing.T) {
	c := load(t, "testdata/full.yaml")
	got, err := c.HTTP.Handler()
	if err != nil {
		t.Fatal(err)
	}
	want := &tasks.HTTPHandler{
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		Secrets:      []string{"env:API_*", "file:/run/secrets/*"},
		SaveDir:      "testdata", MaxSave: 100e6,
	}
	same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	ignored := cmpopts.IgnoreFields(tasks.HTTPHandler{}, "TLS", "Proxy", "PutBackAs")
	if diff := cmp.Diff(want, got, same, ignored, cmpopts.IgnoreUnexported(tasks.HTTPHandler{})); diff != "" {
		t.Error(diff)
	}
	if got.TLS != nil {
		t.Errorf("TLS: %+v, want Go's defaults", got.TLS)
	}
	request := httptest.NewRequest(http.MethodGet, "https://example.com/", nil)
	if u, err := got.Proxy(request); err != nil || u.String() != "http://user:hidden@proxy.example:3128" {
		t.Errorf("proxy: %v, %v", u, err)
	}
	careful := handler(t, "")
	if careful.AllowPrivate != nil || careful.Secrets != nil || careful.SaveDir != "" || careful.TLS != nil || careful.Proxy != nil {
		t.Errorf("a file that says nothing: %+v", careful)
	}
}

// A server whose certificate is the config's own is called, and one of unknown
// origin is not.
func TestHTTPTLS(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	task, err := tasks.NewHTTPRequest(tasks.HTTPRequest{URL: srv.URL, Expect: []int{404}})
	if err != nil {
		t.Fatal(err)
	}
	const local = "http:\n  allow_private: [127.0.0.1]\n"
	if err := handler(t, local+"  tls: {ca: "+ca+"}\n").ProcessTask(t.Context(), task); err != nil {
		t.Errorf("with its certificate: %v", err)
	}
	if err := handler(t, local).ProcessTask(t.Context(), task); tasks.Class(err) != tasks.ClassNetwork {
		t.Errorf("without: %v, want a network error", err)
	}
}

// What the machine lacks is an error of its own that names the field.
func TestHTTPFiles(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"save_dir: FOLDER/none":                                        `headgate.yaml:1:18: http.save_dir: "FOLDER/none": want a folder that exists`,
		"save_dir: FOLDER/file":                                        `headgate.yaml:1:18: http.save_dir: "FOLDER/file": want a folder that exists`,
		"secrets: ['env:NO_SUCH_VARIABLE']":                            `headgate.yaml:1:18: http.secrets[0]: secret env:NO_SUCH_VARIABLE is not set, or empty`,
		"}\ncommands: {a: {run: [b], env: {C: '${file:FOLDER/none}'}}": `headgate.yaml:2:35: commands.a.env.C: secret file:FOLDER/none: open `,
		"}\ncommands: {a: {run: [b], dir: FOLDER/none}":                `headgate.yaml:2:31: commands.a.dir: "FOLDER/none": want a folder that exists`,
		"}\ncrawl: {save_dir: FOLDER/none":                             `headgate.yaml:2:19: crawl.save_dir: "FOLDER/none": want a folder that exists`,
		"}\npage: {token: '${env:NO_SUCH_VARIABLE}'":                   `headgate.yaml:2:15: page.token: secret env:NO_SUCH_VARIABLE is not set, or empty`,
		"tls: {ca: FOLDER/none}":                                       "http.tls.ca: open FOLDER/none: ",
		"tls: {ca: FOLDER/file}":                                       `http.tls.ca: "FOLDER/file" holds no certificate: want a file in PEM`,
		"tls: {cert: FOLDER/file, key: k}":                             "http.tls.cert: open k: ",
	} {
		c := parse(t, "http: {"+strings.ReplaceAll(text, "FOLDER", folder)+"}")
		_, err := c.HTTP.Handler()
		if len(c.MachineErrors) > 0 {
			err = c.MachineErrors
		}
		if want = strings.ReplaceAll(want, "FOLDER", folder); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestProxyOfTheEnvironment(t *testing.T) {
	if h := handler(t, "http: {proxy: environment}"); h.Proxy == nil {
		t.Error("no proxy")
	}
	c, err := Parse("headgate.yaml", []byte("http: {proxy: 'ftp://user:secret@proxy'}"))
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, %v; want an error without the password", c, err)
	}
}
