package main

import (
	"net"
	"strings"
	"testing"
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
	if out.Code != 1 || first != "worker: waiting for Redis, which does not answer" || !strings.Contains(rest, "cannot reach Redis") {
		t.Errorf("%+v", out)
	}
}
