package crawlsite

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Programs are headgate's commands in a folder that nobody else knows, where the
// worker keeps its Redis, if it starts one, and its pages.
type Programs struct {
	Dir string

	ctx context.Context
	bin string
	env []string
}

// Install builds the commands. They reach the site, and go by the config that the
// text is. When the context ends, so do they.
func (s *Site) Install(ctx context.Context, config []byte) (*Programs, error) {
	bin, err := build(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-crawler-")
	if err != nil {
		return nil, err
	}
	p := &Programs{dir, ctx, bin, append(os.Environ(), "HOME="+dir, "XDG_CACHE_HOME="+dir, "HTTP_PROXY="+s.Proxy())}
	return p, errors.Join(
		os.Mkdir(filepath.Join(dir, "pages"), 0o755),
		os.WriteFile(filepath.Join(dir, "headgate.yaml"), config, 0o644),
	)
}

// build returns the folder of the commands. It is the same each time that the working
// folder is, for go leaves alone there what has not changed; who works elsewhere may
// have another version of them, and run it meanwhile.
func build(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(cache, "headgate-crawlsite", fmt.Sprintf("%.8x", sha256.Sum256([]byte(here)))) + string(filepath.Separator)
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", bin, "github.com/headgate/headgate/cmd/worker", "github.com/headgate/headgate/cmd/enqueue")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, text)
	}
	return bin, nil
}

// Worker is "worker run", not started yet.
func (p *Programs) Worker(args ...string) *exec.Cmd {
	worker := p.command("worker", append([]string{"run", "--log-level", "error"}, args...)...)
	worker.Stderr = os.Stderr
	return worker
}

// Begin has "enqueue crawl" begin a crawl of the whole site.
func (p *Programs) Begin(args ...string) error {
	args = append([]string{"crawl", Seed, "--allow", "*.test", "--depth", "20", "--name", "site"}, args...)
	if text, err := p.command("enqueue", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("enqueue crawl: %w: %s", err, text)
	}
	return nil
}

func (p *Programs) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.ctx, filepath.Join(p.bin, name), args...)
	cmd.Dir, cmd.Env = p.Dir, p.env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
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
		text, err := p.command("worker", append([]string{"crawls", "site", "--json"}, args...)...).Output()
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
