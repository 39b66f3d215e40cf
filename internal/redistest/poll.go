package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// How often a server is asked whether it is ready: for some 20 s in all.
const (
	pollTries = 4000
	pollPause = 5 * time.Millisecond
)

// poll repeats check until it succeeds. A process that has exited ends it at
// once; otherwise the error is the last one that check gave.
func poll(what string, check func(context.Context) error) error {
	var err error
	for range pollTries {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err = check(ctx)
		cancel()
		if err == nil || errors.Is(err, errExited) {
			break
		}
		time.Sleep(pollPause)
	}
	if err != nil {
		return fmt.Errorf("%s is not ready: %w", what, err)
	}
	return nil
}

// waitFor waits until a field of the server's INFO has the wanted value.
func (s *Server) waitFor(section, name, want string) error {
	rdb := s.Client()
	defer rdb.Close()
	return poll("redis-server at "+s.Addr(), func(ctx context.Context) error {
		text, err := rdb.Info(ctx, section).Result()
		if err != nil {
			return err
		}
		return expect(text, name, want)
	})
}

// waitForCluster waits until the node knows so many nodes that serve all slots.
func (s *Server) waitForCluster(nodes int) error {
	rdb := s.Client()
	defer rdb.Close()
	return poll("cluster node at "+s.Addr(), func(ctx context.Context) error {
		text, err := rdb.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		return errors.Join(
			expect(text, "cluster_known_nodes", strconv.Itoa(nodes)),
			expect(text, "cluster_state", "ok"),
		)
	})
}

// expect is an error unless INFO's text has a line "name:want".
func expect(text, name, want string) error {
	for line := range strings.Lines(text) {
		if got, ok := strings.CutPrefix(line, name+":"); ok {
			if got = strings.TrimSpace(got); got != want {
				return fmt.Errorf("%s is %q, want %q", name, got, want)
			}
			return nil
		}
	}
	return fmt.Errorf("%s is missing in %q", name, text)
}
