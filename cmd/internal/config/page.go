package config

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Page says who may see the page of "worker run --listen", and what.
type Page struct {
	// Token is what lets a browser in, of at least 8 characters. Without it, and without a user
	// and a password, only browsers on the same machine are let in.
	Token Secret `yaml:"token"`
	// User is a name that lets a browser in, with a password.
	User string `yaml:"user"`
	// Password is the user's, of at least 8 characters.
	Password Secret `yaml:"password"`
	// HTTPS says that browsers come by https, through a proxy.
	HTTPS bool `yaml:"https"`
	// TLSCert is a file in PEM with the certificate by which the worker itself speaks TLS.
	TLSCert string `yaml:"tls_cert"`
	// TLSKey is a file in PEM with the certificate's key.
	TLSKey string `yaml:"tls_key"`
	// OpenMetrics has /metrics and /readyz answer everybody, and not only those whom
	// the page lets in.
	OpenMetrics bool `yaml:"open_metrics"`
	// ReadOnly takes away everything that changes anything.
	ReadOnly bool `yaml:"read_only"`
	// Redact are names of further fields of payloads and headers that are not shown, and of headers
	// that no redirect takes to another host. In a name * stands for any text.
	Redact []string `yaml:"redact"`
}

// Open reports whether the page is for browsers on other machines, too.
func (p Page) Open() bool { return p.Token != "" || p.User != "" }

// Secret is a text that need not stand in the file: ${env:NAME} is the value of
// a variable of the environment.
type Secret string

var environment = regexp.MustCompile(`^\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}$`)

// UnmarshalText reads a secret, and leaves the name of a variable as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	if strings.HasPrefix(string(text), "${") && !environment.Match(text) {
		return fmt.Errorf("%q: want ${env:NAME}, or the text itself", text)
	}
	return nil
}

// resolve puts the value of the variable that a secret names in its place. What is wrong with
// the value is for the commands that use it: see Config.Machine.
func (d *decoder) resolve(path string, s *Secret) {
	name := environment.FindStringSubmatch(string(*s))
	if name == nil {
		return
	}
	value := Secret(os.Getenv(name[1]))
	switch {
	case value == "":
		d.machine(func() { d.errorf(path, "%q: the environment has no %s", *s, name[1]) })
	case value.isShort():
		d.machine(func() { d.errorf(path, "%q: want at least %d characters in %s", *s, minSecret, name[1]) })
	default:
		*s = value
	}
}

// minSecret is how many characters a token or password has at least: a shorter one can
// be guessed.
const minSecret = 8

func (s Secret) isShort() bool { return utf8.RuneCountInString(string(s)) < minSecret }

// Check reports the fields that are wrong by themselves or beside the others, and what is
// wrong with them. It shows no secret.
func (p Page) Check(report func(field, problem string)) {
	short := func(field string, secret Secret) {
		if secret != "" && secret.isShort() {
			report(field, fmt.Sprintf("want at least %d characters", minSecret))
		}
	}
	short("token", p.Token)
	short("password", p.Password)
	alone := func(field, value, shown, other, otherValue string) {
		if value != "" && otherValue == "" {
			report(field, shown+"want a "+other+" beside it")
		}
	}
	alone("user", p.User, fmt.Sprintf("%q: ", p.User), "password", string(p.Password))
	alone("password", string(p.Password), "", "user", p.User)
	alone("tls_cert", p.TLSCert, fmt.Sprintf("%q: ", p.TLSCert), "tls_key", p.TLSKey)
	alone("tls_key", p.TLSKey, fmt.Sprintf("%q: ", p.TLSKey), "tls_cert", p.TLSCert)
}

func (d *decoder) checkPage(p *Page) {
	p.Check(func(field, problem string) { d.errorf("page."+field, "%s", problem) })
	for i, name := range p.Redact {
		d.want(name != "" && !strings.ContainsAny(name, "[]\\\n"), indexed("page.redact", i), "%q: want the name of a field or header, where * stands for any text", name)
	}
	d.resolve("page.token", &p.Token)
	d.resolve("page.password", &p.Password)
}

// ListenAddress is the address to listen at that a text means: one without a
// host is of this machine only. Empty stays empty.
func ListenAddress(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(text)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n > 65535 {
		return "", fmt.Errorf("%q: want HOST:PORT or :PORT, such as :9090", text)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}
