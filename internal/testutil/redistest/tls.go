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
	"slices"
	"time"
)

// Certificates are the names of PEM files: certificate and key of a server on this machine, and of
// a client. CA holds both certificates, as authorities.
type Certificates struct{ CA, Cert, Key, ClientCert, ClientKey string }

// WriteCertificates creates certificates in a folder.
func WriteCertificates(dir string) (Certificates, error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	files := Certificates{at("ca.pem"), at("cert.pem"), at("key.pem"), at("client.pem"), at("client-key.pem")}
	server, err1 := selfSigned(2, files.Cert, files.Key)
	client, err2 := selfSigned(3, files.ClientCert, files.ClientKey)
	return files, errors.Join(err1, err2, os.WriteFile(files.CA, slices.Concat(server, client), 0o600))
}

// selfSigned writes a certificate and its key, and returns the certificate.
func selfSigned(number int64, certFile, keyFile string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:      pkix.Name{CommonName: filepath.Base(certFile)}, // OpenSSL finds an authority by its name
		SerialNumber: big.NewInt(number), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err1 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	private, err2 := x509.MarshalPKCS8PrivateKey(key)
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return cert, errors.Join(err1, err2, os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, private, 0o600))
}

func (c Certificates) config() (*tls.Config, error) {
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", Certificates: []tls.Certificate{client}}, err
}
