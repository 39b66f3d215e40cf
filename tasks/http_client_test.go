package tasks

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestTLS(t *testing.T) {
	var proto string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { proto = r.Proto }))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())

	if err := process(t, HTTPRequest{URL: srv.URL}); Class(err) != ClassNetwork {
		t.Errorf("without the server's root: got %v, want a NetworkError", err)
	}
	h := local()
	h.TLS = &tls.Config{RootCAs: roots}
	if err := processBy(t, h, HTTPRequest{URL: srv.URL}); err != nil {
		t.Errorf("with the server's root: %v", err)
	}
	if proto != "HTTP/2.0" {
		t.Errorf("the call came by %s, want HTTP/2.0", proto)
	}
}
