package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	certFile = "cert.pem"
	keyFile  = "key.pem"
)

// StartTLS is [Start] for a server that speaks only TLS. Its certificate is its
// own, so [Server.Options] carries the trust that a client needs and
// [Server.CertFile] has it as a file.
func StartTLS(args ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	config, err := writeCertificate(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	secure := []string{
		"--tls-cert-file", filepath.Join(dir, certFile),
		"--tls-key-file", filepath.Join(dir, keyFile),
		"--tls-auth-clients", "no",
	}
	return startIn(dir, config, append(secure, args...))
}

// writeCertificate puts a self-signed certificate for 127.0.0.1 and its key
// into dir, and returns the configuration of a client that trusts it.
func writeCertificate(dir string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	certDER, err := selfSigned(key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certDER})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}, errors.Join(
		os.WriteFile(filepath.Join(dir, certFile), cert, 0o600),
		os.WriteFile(filepath.Join(dir, keyFile), pem.EncodeToMemory(
			&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600),
	)
}

func selfSigned(key *ecdsa.PrivateKey) ([]byte, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "redistest"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		// It is its own authority.
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	return x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
}
