package config

import (
	"fmt"
	"net"
	"strconv"
)

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
