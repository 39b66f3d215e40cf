package main

import (
	"cmp"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/listen"
)

// pageSecrets open the page, instead of what the config says.
type pageSecrets struct {
	PageToken    string `env:"HEADGATE_PAGE_TOKEN" placeholder:"TEXT" help:"Token of at least 8 characters that opens the page to other machines, better given in HEADGATE_PAGE_TOKEN or the config."`
	PageUser     string `env:"HEADGATE_PAGE_USER" placeholder:"NAME" help:"User of the page, with a password, instead of a token."`
	PagePassword string `env:"HEADGATE_PAGE_PASSWORD" placeholder:"TEXT" help:"The user's password, of at least 8 characters."`
}

// pageFlags say who may see the page and how, instead of what the config says.
type pageFlags struct {
	pageSecrets
	PageReadOnly bool   `help:"Nothing can be changed on the page."`
	TLSCert      string `name:"tls-cert" placeholder:"FILE" help:"Certificate in PEM, with --tls-key: what is at --listen is served by https. When the files change the new ones are taken."`
	TLSKey       string `name:"tls-key" placeholder:"FILE" help:"The certificate's key in PEM."`
}

// over is the config's page with what the flags say instead.
func (f pageSecrets) over(p config.Page) config.Page {
	p.Token = cmp.Or(config.Secret(f.PageToken), p.Token)
	p.User = cmp.Or(f.PageUser, p.User)
	p.Password = cmp.Or(config.Secret(f.PagePassword), p.Password)
	return p
}

// over is the config's page with what the flags say instead.
func (f pageFlags) over(p config.Page) config.Page {
	p = f.pageSecrets.over(p)
	p.TLSCert, p.TLSKey = cmp.Or(f.TLSCert, p.TLSCert), cmp.Or(f.TLSKey, p.TLSKey)
	p.ReadOnly = p.ReadOnly || f.PageReadOnly
	return p
}

var pageFlag = map[string]string{
	"token": "page-token", "user": "page-user", "password": "page-password", "tls_cert": "tls-cert", "tls_key": "tls-key",
}

// checkPage refuses to show the page to other machines without asking who they
// are.
func checkPage(addr string, p config.Page) error {
	var wrong error
	p.Check(func(field, problem string) { // the config's have been checked: of the flags
		wrong = cmp.Or(wrong, error(cli.Usagef("--%s: %s", pageFlag[field], problem)))
	})
	if wrong != nil {
		return wrong
	}
	if p.TLSCert != "" {
		if _, err := listen.NewCertificate(p.TLSCert, p.TLSKey, nil); err != nil {
			return err
		}
	}
	address, err := config.ListenAddress(addr)
	if err != nil {
		return cli.Usagef("--listen %w", err)
	}
	if address == "" || p.Open() || listen.OfThisMachine(address) {
		return nil
	}
	return cli.Usagef("--listen %s: others could reach the page there: want a page.token, or a page.user and page.password, in the config (or HEADGATE_PAGE_TOKEN), or an address such as localhost:8080", addr)
}
