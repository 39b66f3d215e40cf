package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// HTTP is the http section: which addresses, secrets and files http:request jobs may use. The zero
// value allows public addresses only, and no proxy, secrets or files.
type HTTP struct {
	// AllowPrivate are private networks that jobs may call. If there is a proxy, only the address of
	// the proxy is checked.
	AllowPrivate []Network `yaml:"allow_private"`
	// Secrets are the secrets that payloads may use: env:NAME or file:/PATH, where * stands for any
	// text without a slash.
	Secrets []string `yaml:"secrets"`
	// RedirectBodies are the hosts that may get a call's body when another host redirects the call
	// with 307 or 308. *.example.com means all hosts below example.com.
	RedirectBodies []string `yaml:"redirect_bodies"`
	// SaveDir is the folder below which bodies may be saved. It must exist. The zero value means
	// nothing is saved.
	SaveDir string `yaml:"save_dir"`
	// MaxSave is the maximum size of a saved body. The zero value means tasks.DefaultMaxSave.
	MaxSave int64 `yaml:"max_save"`
	// TLS has the trusted certificates and the client certificate for https calls.
	TLS TLS `yaml:"tls"`
	// Proxy is the proxy of all calls. The word environment means the variables HTTP_PROXY,
	// HTTPS_PROXY and NO_PROXY. The zero value means none.
	Proxy Proxy `yaml:"proxy"`
}

// Handler returns the handler of http:request jobs. An error names the TLS file that cannot be used.
func (h HTTP) Handler() (*tasks.HTTPHandler, error) {
	handler := &tasks.HTTPHandler{
		Secrets: h.Secrets, RedirectBodies: h.RedirectBodies, SaveDir: h.SaveDir, MaxSave: h.MaxSave,
		Proxy: h.Proxy.choose(), PutBackAs: scheduler.PutBackAs,
	}
	for _, n := range h.AllowPrivate {
		handler.AllowPrivate = append(handler.AllowPrivate, n.Prefix)
	}
	var err error
	if handler.TLS, err = h.TLS.Config(); err != nil {
		return nil, fmt.Errorf("http.tls.%w", err)
	}
	return handler, nil
}

func (d *decoder) checkHTTP(h HTTP) {
	for i, secret := range h.Secrets {
		at := indexed("http.secrets", i)
		d.checkSecret(at, secret)
		if !strings.ContainsAny(secret, `*?[\`) {
			_, err := tasks.Secret("${" + secret + "}")
			d.wantOnMachine(err == nil, at, "%v", err)
		}
	}
	for i, host := range h.RedirectBodies {
		name, err := canonical.Host(strings.TrimPrefix(host, "*."))
		d.want(err == nil && tasks.ValidateAllow(name) == nil, indexed("http.redirect_bodies", i), "%q: want a host such as example.com, or *.example.com for all below it", host)
	}
	d.want(h.SaveDir != "", "http.save_dir", `"": want a folder; leave it out to save nothing`)
	d.wantFolder("http.save_dir", h.SaveDir)
	d.want(h.SaveDir != "", "http.max_save", "%d bytes: save_dir is missing: want the folder as well", h.MaxSave)
	d.checkTLS("http.tls")
}

// checkSecret reports a pattern that is neither env:NAME nor file:PATH with an absolute, clean
// path.
func (d *decoder) checkSecret(at, pattern string) {
	kind, name, _ := strings.Cut(pattern, ":")
	_, malformed := path.Match(name, "")
	ok := kind == "env" && name != "" || kind == "file" && filepath.IsAbs(name) && path.Clean(name) == name
	d.want(ok && malformed == nil, at, "%q: want env:NAME or file:/PATH, where * stands for any text without a slash", pattern)
}

var agentForm = regexp.MustCompile(`^[A-Za-z_-]+[ -~]*$`)

func (d *decoder) checkCrawl(c tasks.CrawlHandler) {
	d.want(agentForm.MatchString(c.Agent), "crawl.agent", "%q: want the crawler's name, such as examplebot/1.0 (+https://example.com/bot)", c.Agent)
	d.want(c.MaxPages >= 1, "crawl.max_pages", "%d: want how many pages a crawl may have, at least 1", c.MaxPages)
	d.want(c.MaxHostPages >= 1, "crawl.max_host_pages", "%d: want how many pages a crawl may have of a host, at least 1", c.MaxHostPages)
	for field, patterns := range map[string][]*regexp.Regexp{"crawl.include": c.Include, "crawl.exclude": c.Exclude} {
		for i, p := range patterns {
			d.want(p.String() != "", indexed(field, i), `"": want a regular expression such as ^https://example\.com/docs/`)
		}
	}
	d.want(c.SaveDir != "", "crawl.save_dir", `"": want a folder; leave it out to save nothing`)
	d.wantFolder("crawl.save_dir", c.SaveDir)
}

// Proxy is the proxy of calls. The zero value is none.
type Proxy struct {
	URL *url.URL
	// Environment means that the variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY choose the proxy.
	Environment bool
}

// UnmarshalText reads a URL or the word environment. No error contains the URL, because a URL can
// have a password.
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

func (p Proxy) choose() func(*http.Request) (*url.URL, error) {
	switch {
	case p.Environment:
		return http.ProxyFromEnvironment
	case p.URL != nil:
		return http.ProxyURL(p.URL)
	}
	return nil
}

// TLS has the certificates for calls over https, or for Redis over TLS.
type TLS struct {
	// CA is a PEM file with certificates to trust in addition to the system's.
	CA string `yaml:"ca"`
	// Cert is a PEM file with the client certificate that is sent to servers.
	Cert string `yaml:"cert"`
	// Key is a PEM file with the private key of the client certificate.
	Key string `yaml:"key"`
}

// Config reads the files. It returns nil if no field is set. An error begins with the field's name.
func (t TLS) Config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	c := new(tls.Config)
	if t.CA != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: %q holds no certificate: want a file in PEM", t.CA)
		}
		c.RootCAs = roots
	}
	if t.Cert+t.Key != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			return &pair, err
		}
		if _, err := load(nil); err != nil {
			return nil, fmt.Errorf("cert: %w", err)
		}
		// Each connection reads the files again, because certificates are renewed.
		c.GetClientCertificate = load
	}
	return c, nil
}

// checkTLS reports a certificate without a key, and a key without a certificate.
func (d *decoder) checkTLS(at string) {
	for _, pair := range [][2]string{{"cert", "key"}, {"key", "cert"}} {
		d.want(d.has(join(at, pair[1])), join(at, pair[0]), "%s is missing: want both, or neither", pair[1])
	}
}

// Network is a range of IP addresses.
type Network struct{ netip.Prefix }

// UnmarshalText reads a range such as 10.0.0.0/8, or one address.
func (n *Network) UnmarshalText(text []byte) error {
	if a, err := netip.ParseAddr(string(text)); err == nil && a.Zone() == "" && !a.Is4In6() {
		n.Prefix = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(string(text))
	switch {
	case err != nil || p.Addr().Is4In6():
		return fmt.Errorf("%q: want a network such as 10.0.0.0/8 or fd00::/8, or an address", text)
	case p != p.Masked():
		return fmt.Errorf("%q has bits beyond its prefix: want %s for the network, or %s for the address", text, p.Masked(), p.Addr())
	}
	n.Prefix = p
	return nil
}

var sizeUnits = map[string]int64{"kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// parseSize reads a number of bytes such as 100MB.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "kKMGiB ")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit := sizeUnits[strings.TrimSpace(text[len(digits):])]
	if err != nil || n < 1 || n > 1e9 || unit == 0 {
		return 0, fmt.Errorf("%q: want a size above zero, such as 500kB, 100MB or 2GiB", text)
	}
	return n * unit, nil
}
