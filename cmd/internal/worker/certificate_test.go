package worker

import (
	"crypto/tls"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestPageOverTLS: with a certificate the page speaks TLS and its cookie goes by nothing
// else; a renewed certificate is shown without a restart, and a broken one never.
func TestPageOverTLS(t *testing.T) {
	dir := t.TempDir()
	files, err := redistest.WriteCertificates(dir)
	if err != nil {
		t.Fatal(err)
	}
	at, _ := runWorker(t, redistest.Run(t), fmt.Sprintf("page: {token: open sesame, tls_cert: %s, tls_key: %s}\n", files.Cert, files.Key))
	if !strings.HasPrefix(at, "https://") {
		t.Fatalf("it listens at %s, want https", at)
	}
	address := strings.TrimPrefix(at, "https://")
	shown := func() *big.Int {
		t.Helper()
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if proto := conn.ConnectionState().NegotiatedProtocol; proto != "http/1.1" {
			t.Errorf("it speaks %s", proto)
		}
		return conn.ConnectionState().PeerCertificates[0].SerialNumber
	}
	if got := shown(); got.Int64() != 2 {
		t.Errorf("the certificate shown is number %d, want that of the file", got)
	}

	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Get(at + "/?token=open+sesame")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if cookies := resp.Cookies(); len(cookies) != 1 || !cookies[0].Secure {
		t.Errorf("the cookie: %v, want one that goes by https alone", cookies)
	}

	if err := os.Rename(files.ClientCert, files.Cert); err != nil {
		t.Fatal(err)
	}
	if got := shown(); got.Int64() != 2 {
		t.Errorf("a certificate without its key: number %d is shown, want the last", got)
	}
	if err := os.Rename(files.ClientKey, files.Key); err != nil {
		t.Fatal(err)
	}
	if got := shown(); got.Int64() != 3 {
		t.Errorf("renewed, number %d is shown, want the new one", got)
	}
}
