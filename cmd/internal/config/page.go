package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/tasks"
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

// Secret is a text that need not stand in the file: ${env:NAME} and ${file:/path} are the value
// of a variable of the environment and the text of a file.
type Secret string

// UnmarshalText reads a secret, and leaves a reference as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	if strings.HasPrefix(string(text), "${") && !tasks.IsReference(string(text)) {
		return fmt.Errorf("%q: want ${env:NAME} or ${file:/path}, or the text itself", text)
	}
	return nil
}

// resolve puts the value that a secret refers to in its place. What is wrong with the value is
// for the commands that use it: see Config.Machine.
func (d *decoder) resolve(path string, s *Secret) {
	value, err := tasks.Secret(string(*s))
	d.machine(func() { d.want(err == nil, path, "%v", err) })
	if err == nil {
		*s = Secret(value)
	}
}

// minSecret is how many characters a token or password has at least: a shorter one can
// be guessed.
const minSecret = 8

// Check reports the fields that are wrong by themselves or beside the others, and what is
// wrong with them. It shows no secret.
func (p Page) Check(report func(field, problem string)) {
	short := func(field string, secret Secret) {
		if secret != "" && utf8.RuneCountInString(string(secret)) < minSecret {
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
