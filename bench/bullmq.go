package main

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed bullmq/package.json bullmq/.npmrc bullmq/worker.mjs
var bullmqFiles embed.FS

// runBullMQ runs a backlog on BullMQ with a global rate limit of the same rate and burst: capacity
// jobs in capacity/rate seconds. A limit of one job in 1/rate seconds would be worse for BullMQ,
// because BullMQ would wait before every job. Each window of BullMQ starts with its first job.
func runBullMQ(b *bench, s spec) (outcome, error) {
	if s.Hosts > 0 || s.Arrive > 0 {
		return outcome{}, errors.New("--against bullmq: it has one limit a queue, so not with --hosts; nor is it measured with --arrive")
	}
	if err := b.empty(); err != nil {
		return outcome{}, err
	}
	dir, err := installBullMQ(b)
	if err != nil {
		return outcome{}, err
	}
	duration := time.Duration(s.burst()) * time.Second / time.Duration(s.Rate)
	if duration < time.Millisecond || duration%time.Millisecond != 0 {
		return outcome{}, fmt.Errorf("--against bullmq: capacity/rate is %s, and it needs whole milliseconds", duration)
	}
	_, port, _ := strings.Cut(b.server.Addr(), ":")
	settings := fmt.Sprintf(`{"port":%s,"jobs":%d,"concurrency":%d,"max":%d,"duration":%d}`, port, s.Jobs, s.Concurrency, s.burst(), duration.Milliseconds())
	ctx, cancel := context.WithTimeout(b.ctx, s.patience())
	defer cancel()
	node := exec.CommandContext(ctx, "node", "worker.mjs", settings)
	node.Dir, node.Stderr = dir, b.stderr
	stdin, err1 := node.StdinPipe()
	stdout, err2 := node.StdoutPipe()
	if err := errors.Join(err1, err2, node.Start()); err != nil {
		return outcome{}, err
	}
	defer func() {
		_ = node.Process.Kill() // it has ended already unless something failed
		_ = node.Wait()
	}()

	lines := bufio.NewReader(stdout)
	added, err := b.spent(func() error { return expectLine(lines, "added") })
	if err != nil {
		return outcome{}, err
	}
	if err := expectLine(lines, "ready"); err != nil {
		return outcome{}, err
	}
	begin := time.Now()
	spent, err := b.spent(func() error {
		if _, err := fmt.Fprintln(stdin, "go"); err != nil {
			return err
		}
		return expectLine(lines, "done")
	})
	if err != nil {
		return outcome{}, err
	}
	var moments []int64
	if err := json.NewDecoder(lines).Decode(&moments); err != nil {
		return outcome{}, fmt.Errorf("the starts that BullMQ's worker reports: %w", err)
	}
	out := outcome{begin: begin.UnixMicro(), added: added, spent: spent}
	for i, at := range moments {
		out.starts = append(out.starts, start{job{Number: i}, at, at})
	}
	out.late = latenesses(s, out.begin, out.starts, nil)
	return out, nil
}

func expectLine(lines *bufio.Reader, want string) error {
	line, err := lines.ReadString('\n')
	if err != nil {
		return fmt.Errorf("BullMQ's worker ended before it was %s: %w", want, err)
	}
	if got := strings.TrimSpace(line); got != want {
		return fmt.Errorf("BullMQ's worker says %q, want %q", got, want)
	}
	return nil
}

// installBullMQ installs BullMQ with npm, in the version of package.json, beside the redis-server's
// data, and returns that folder.
func installBullMQ(b *bench) (string, error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("--against bullmq needs %s: install Node.js 20 or later", program)
		}
	}
	dir := filepath.Join(b.server.Dir(), "bullmq")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	b.note("installing BullMQ into %s", dir)
	if err := os.CopyFS(b.server.Dir(), bullmqFiles); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if output, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install bullmq: %w: %s", err, strings.TrimSpace(string(output)))
	}
	return dir, nil
}
