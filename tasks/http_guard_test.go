package tasks

import (
	"errors"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"
)

func TestIsPublic(t *testing.T) {
	tests := map[bool][]string{
		true: {
			"1.1.1.1", "93.184.216.34", "223.255.255.255", "::ffff:1.1.1.1", "2606:4700::1111", "2a00::1",
			"64:ff9b::1.1.1.1",
		},
		false: {
			"127.0.0.1", "127.255.255.255", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
			"169.254.169.254", "169.254.42.42", "168.63.129.16", "::ffff:168.63.129.16", "0.0.0.0", "0.1.2.3", "100.64.0.1", "100.100.100.200", "192.0.0.1", "192.0.2.1",
			"198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
			"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fec0::1",
			"fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "2001::1", "3fff::1", "100::1",
			"64:ff9b::127.0.0.1", "64:ff9b::a83f:8110", "2002:a9fe:a9fe::1", "64:ff9b:1::1", "2002:101:101::1", "5f00::1",
		},
	}
	for want, addresses := range tests {
		for _, text := range addresses {
			if got := isPublic(netip.MustParseAddr(text)); got != want {
				t.Errorf("isPublic(%s) = %t, want %t", text, got, want)
			}
		}
	}
}

func TestHTTP_PrivateAddress_IsRefused(t *testing.T) {
	for _, url := range []string{
		"http://127.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://0.0.0.0/", "http://[::]/",
		"http://localhost/", "http://169.254.169.254/latest/meta-data/", "https://10.0.0.1:8443/", "http://[fe80::1%25lo]/", "http://224.0.0.1/",
	} {
		err := processBy(t, new(HTTPHandler), HTTPRequest{URL: url})
		if _, ok := errors.AsType[*AddressError](err); !ok || !errors.Is(err, asynq.SkipRetry) || Class(err) != "" {
			t.Errorf("%s: got %v, want an AddressError, and the job archived", url, err)
		}
	}
}

// Each connection's address is checked, because a name can lead to another address each time.
func TestHTTP_Control(t *testing.T) {
	h := &HTTPHandler{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	for address, allowed := range map[string]bool{
		"1.1.1.1:443": true, "127.0.0.1:80": true, "[::ffff:127.0.0.1]:80": true, "127.0.0.3:80": false, "[fe80::1%lo]:80": false,
	} {
		err := h.control("tcp", address, nil)
		if _, refused := errors.AsType[*AddressError](err); refused == allowed {
			t.Errorf("%s: got %v, want it allowed: %t", address, err, allowed)
		}
	}
}

// A proxy in the environment would decide where calls go.
func TestHTTP_IgnoresEnvironmentProxy(t *testing.T) {
	var proxied atomic.Int32
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { proxied.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy)
	}
	err := process(t, HTTPRequest{URL: "http://10.0.0.1/"})
	if _, ok := errors.AsType[*AddressError](err); !ok || proxied.Load() != 0 {
		t.Errorf("the proxy saw %d calls: %v; want an AddressError of 10.0.0.1", proxied.Load(), err)
	}
}
