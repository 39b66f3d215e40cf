package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Page says who may see the page of "worker run --listen", and what.
type Page struct {
	// Token, or User and Password, let a browser in. Without any of them only
	// browsers on the same machine are let in.
	Token    Secret `yaml:"token"`
	User     string `yaml:"user"`
	Password Secret `yaml:"password"`
	// ReadOnly takes away everything that changes anything.
	ReadOnly bool `yaml:"read_only"`
	// Redact names fields of payloads and headers that are not shown, where *
	// stands for any text.
	Redact []string `yaml:"redact"`
}

// Open reports whether the page is for browsers on other machines, too.
func (p Page) Open() bool { return p.Token != "" || p.User != "" }

// Secret is a text that need not stand in the file: ${env:NAME} is the value of
// a variable of the environment.
type Secret string

var environment = regexp.MustCompile(`^\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}$`)

// UnmarshalText reads a secret.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	if !strings.HasPrefix(string(text), "${") {
		return nil
	}
	name := environment.FindSubmatch(text)
	if name == nil {
		return fmt.Errorf("%q: want ${env:NAME}, or the text itself", text)
	}
	value := os.Getenv(string(name[1]))
	if value == "" {
		return fmt.Errorf("%q: the environment has no %s", text, name[1])
	}
	*s = Secret(value)
	return nil
}

// MinToken is how long a token is at least: a shorter one can be guessed.
const MinToken = 8

func (d *decoder) checkPage(p Page) {
	if p.Token != "" && len(p.Token) < MinToken {
		d.errorf("page.token", "want at least %d characters", MinToken)
	}
	if p.User != "" && p.Password == "" {
		d.errorf("page.user", "%q: want a password beside it", p.User)
	}
	if p.Password != "" && p.User == "" {
		d.errorf("page.password", "want a user beside it")
	}
	for i, name := range p.Redact {
		if name == "" || strings.ContainsAny(name, "[]\\\n") {
			d.errorf(indexed("page.redact", i), "%q: want the name of a field or header, where * stands for any text", name)
		}
	}
}
