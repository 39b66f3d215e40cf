package crawlsite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/internal/programs"
)

// Programs are headgate's commands. Their worker keeps the pages in their folder.
type Programs struct {
	*programs.Programs
	ctx context.Context
}

// Install builds the commands. They reach the site, and go by the config that the
// text is. When the context ends, so do they.
func (s *Site) Install(ctx context.Context, config []byte) (*Programs, error) {
	p, err := programs.Install(ctx, "HTTP_PROXY="+s.Proxy())
	if err != nil {
		return nil, err
	}
	return &Programs{p, ctx}, errors.Join(p.Write("headgate.yaml", string(config)), os.Mkdir(filepath.Join(p.Dir, "pages"), 0o755))
}

// Worker is "worker run", not started yet.
func (p *Programs) Worker(args ...string) *exec.Cmd {
	worker := p.Command(p.ctx, "worker", append([]string{"run", "--log-level", "error"}, args...)...)
	worker.Stderr = os.Stderr
	return worker
}

// Begin has "enqueue crawl" begin a crawl of the whole site.
func (p *Programs) Begin(args ...string) error {
	args = append([]string{"crawl", Seed, "--allow", "*.test", "--depth", "20", "--name", "site"}, args...)
	if text, err := p.Command(p.ctx, "enqueue", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("enqueue crawl: %w: %s", err, text)
	}
	return nil
}

// Wait returns when "worker crawls" says that nothing of the crawl is left to do.
// It asks when all pages have been fetched or none has for a while, because that
// takes time from the crawl.
func (p *Programs) Wait(site *Site, args ...string) error {
	fetched, since := -1, time.Now()
	for p.ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		if n := site.Fetched(); n > fetched {
			fetched, since = n, time.Now()
		}
		if !site.Done() && time.Since(since) < 5*time.Second {
			continue
		}
		since = time.Now()
		text, err := p.Command(p.ctx, "worker", append([]string{"crawls", "site", "--json"}, args...)...).Output()
		if err != nil {
			return fmt.Errorf("worker crawls: %w", err)
		}
		var progress struct{ Waiting int }
		if err := json.Unmarshal(text, &progress); err != nil || progress.Waiting == 0 {
			return err
		}
	}
	return p.ctx.Err()
}
