package main

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A command that waits for Redis prints the URL of Redis.
func TestNotice_RedisDoesNotAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // which accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	out := command.Run(t.Context(), "status", "--redis", "redis://"+silent.Addr().String())
	first, rest, _ := strings.Cut(out.Err, "\n")
	if out.Code != 1 || first != "worker: waiting for Redis, which does not answer: redis://"+silent.Addr().String() || !strings.Contains(rest, "cannot reach Redis") {
		t.Errorf("%+v", out)
	}
}

func TestNotice_Once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		n := &notice{out: &out, redis: "redis://x"}
		call := func(takes time.Duration, err error) {
			_ = n.during(func() error { time.Sleep(takes); return err })
		}
		want := func(times int) {
			t.Helper()
			if got := strings.Count(out.String(), "waiting for Redis"); got != times {
				t.Errorf("said %d times, want %d", got, times)
			}
		}
		call(time.Second, nil)
		want(0)
		call(time.Minute, errors.New("timeout"))
		call(time.Minute, nil)
		want(1)
		call(time.Minute, nil)
		want(2)
	})
}
