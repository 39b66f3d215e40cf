package config

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// HTTP says what the calls of http:request jobs may do. The zero value is as
// careful as that of tasks.HTTPHandler: public addresses alone, no proxy, no
// secrets, no files.
type HTTP struct {
	// AllowPrivate are networks that may be called although they are not public. With a proxy it
	// is the proxy's address that counts.
	AllowPrivate []Network `yaml:"allow_private"`
	// Secrets are what payloads may refer to: env:NAME or file:/PATH, where * stands for any
	// text without a slash.
	Secrets []string `yaml:"secrets"`
	// SaveDir is the folder below which bodies may be saved. It must exist. The zero value means
	// nothing is saved.
	SaveDir string `yaml:"save_dir"`
	// MaxSave is how long a saved body may be. The zero value means tasks.DefaultMaxSave.
	MaxSave Size `yaml:"max_save"`
	// TLS says whom to trust and what to show in calls over https.
	TLS TLS `yaml:"tls"`
	// Proxy is what calls go through. With the word environment it is what HTTP_PROXY,
	// HTTPS_PROXY and NO_PROXY say. The zero value means none.
	Proxy Proxy `yaml:"proxy"`
}

// Handler is the handler of http:request jobs, for package scheduler's server.
// The error says which of the files that the config names cannot be used.
func (h HTTP) Handler() (*tasks.HTTPHandler, error) {
	handler := &tasks.HTTPHandler{
		Secrets: h.Secrets, SaveDir: h.SaveDir, MaxSave: int64(h.MaxSave),
		Proxy: h.Proxy.choose(), PutBackAs: scheduler.PutBackAs,
	}
	for _, n := range h.AllowPrivate {
		handler.AllowPrivate = append(handler.AllowPrivate, n.Prefix)
	}
	if info, err := os.Stat(h.SaveDir); h.SaveDir != "" && (err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("http.save_dir: %q: want a folder that is there", h.SaveDir)
	}
	var err error
	if handler.TLS, err = h.TLS.config(); err != nil {
		return nil, fmt.Errorf("http.tls.%w", err)
	}
	return handler, nil
}

// String says in a line what calls may do beyond the zero value; empty if that
// is nothing.
func (h HTTP) String() string {
	var parts []string
	add := func(what string, values ...string) {
		if text := strings.Join(values, " "); text != "" {
			parts = append(parts, what+" "+text)
		}
	}
	var networks []string
	for _, n := range h.AllowPrivate {
		networks = append(networks, n.String())
	}
	add("may call", networks...)
	add("gives out", h.Secrets...)
	add("saves below", h.SaveDir)
	add("through", h.Proxy.String())
	return strings.Join(parts, "; ")
}

func (d *decoder) checkHTTP(h HTTP) {
	for i, secret := range h.Secrets {
		d.checkSecret(indexed("http.secrets", i), secret)
	}
	if d.has("http.save_dir") && h.SaveDir == "" {
		d.errorf("http.save_dir", `"": want a folder; leave it out to save nothing`)
	}
	if d.has("http.max_save") && h.SaveDir == "" {
		d.errorf("http.max_save", "%s: save_dir is missing: want the folder as well", h.MaxSave)
	}
	d.checkTLS("http.tls")
}

// checkSecret reports a pattern that no secret can match.
func (d *decoder) checkSecret(at, pattern string) {
	kind, name, _ := strings.Cut(pattern, ":")
	_, malformed := path.Match(name, "")
	ok := kind == "env" && name != "" || kind == "file" && filepath.IsAbs(name) && path.Clean(name) == name
	if malformed != nil || !ok {
		d.errorf(at, "%q: want env:NAME or file:/PATH, where * stands for any text without a slash", pattern)
	}
}

// Proxy is through what calls go. The zero value is nothing.
type Proxy struct {
	URL *url.URL
	// Environment means what HTTP_PROXY, HTTPS_PROXY and NO_PROXY say.
	Environment bool
}

// UnmarshalText reads a URL, or the word environment. No error shows the URL:
// it can hold a password.
func (p *Proxy) UnmarshalText(text []byte) error {
	if string(text) == "environment" {
		p.Environment = true
		return nil
	}
	u, err := url.Parse(string(text))
	if err == nil && u.Hostname() != "" {
		switch u.Scheme {
		case "http", "https", "socks5", "socks5h":
			p.URL = u
			return nil
		}
	}
	return errors.New("not a proxy: want http://HOST:PORT, https://…, socks5://… or the word environment")
}

// String is the URL without its password.
func (p Proxy) String() string {
	switch {
	case p.Environment:
		return "the environment's proxy"
	case p.URL != nil:
		return p.URL.Redacted()
	}
	return ""
}

func (p Proxy) choose() func(*http.Request) (*url.URL, error) {
	switch {
	case p.Environment:
		return http.ProxyFromEnvironment
	case p.URL != nil:
		return http.ProxyURL(p.URL)
	}
	return nil
}
