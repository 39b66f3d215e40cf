package cli

import (
	"errors"
	"io/fs"
	"os"

	"github.com/headgate/headgate/internal/config"
)

// DefaultConfig is the file that is read where no other is named.
const DefaultConfig = "headgate.yaml"

// Globals are the flags that every command has.
type Globals struct {
	Config string `short:"c" placeholder:"FILE" help:"Config file. Without it headgate.yaml in the current folder, if there is one."`
	Redis  string `env:"HEADGATE_REDIS" placeholder:"URL" help:"Where Redis is, instead of what the config says: redis://HOST:PORT/DB, rediss://… (TLS), unix:///PATH, redis-sentinel://HOST,HOST/MASTER or redis-cluster://HOST,HOST. Without any, a Redis within \"worker run\" is used; a stop keeps what is in it, a crash loses its last second or two."`
	Scope  string `placeholder:"NAME" help:"The set of limits to use, instead of what the config says."`
}

// Path is the config file.
func (g *Globals) Path() string {
	if g.Config == "" {
		return DefaultConfig
	}
	return g.Config
}

// check refuses a file that was named and is not there, also of commands that read none.
func (g *Globals) check() error {
	if _, err := os.Stat(g.Path()); g.Config != "" && errors.Is(err, fs.ErrNotExist) {
		return Usagef("--config %s: there is no such file", g.Config)
	}
	return nil
}

// Load reads the config file and what the flags say instead.
func (g *Globals) Load() (*config.Config, error) {
	c, err := config.Load(g.Path())
	if err != nil {
		return nil, err
	}
	if g.Redis != "" {
		if c.Redis, err = config.ParseRedisURL(g.Redis); err != nil {
			return nil, Usagef("--redis: %w", err)
		}
		if err := c.Redis.UseTLS(c.RedisTLS); err != nil {
			return nil, Usagef("--redis: %w, as the config has redis_tls", err)
		}
	}
	if c.Redis.IsZero() && c.RedisTLS != (config.TLS{}) {
		return nil, Usagef("redis_tls: there is no redis that it is for: want redis: rediss://HOST:PORT, or --redis")
	}
	if g.Scope != "" {
		if err := config.CheckName(g.Scope); err != nil {
			return nil, Usagef("--scope %w", err)
		}
		c.Scope = g.Scope
	}
	return c, nil
}
