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

// Certificates are PEM files: an authority, and a server at 127.0.0.1 and localhost and a client of
// it with their keys.
type Certificates struct{ CA, Cert, Key, ClientCert, ClientKey string }

// WriteCertificates creates certificates in a folder.
func WriteCertificates(dir string) (Certificates, error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	files := Certificates{at("ca.pem"), at("cert.pem"), at("key.pem"), at("client.pem"), at("client-key.pem")}
	ca := template("redistest", 1)
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caKey, err := issue(ca, ca, nil, files.CA, "")
	if err != nil {
		return Certificates{}, err
	}
	server := template("server", 2)
	server.IPAddresses, server.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client := template("client", 3)
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	_, err1 := issue(server, ca, caKey, files.Cert, files.Key)
	_, err2 := issue(client, ca, caKey, files.ClientCert, files.ClientKey)
	return files, errors.Join(err1, err2)
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

func template(name string, serial int64) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// issue writes a certificate, signed by a parent's key or self-signed, and its key if keyFile is set.
func issue(cert, parent *x509.Certificate, by *ecdsa.PrivateKey, certFile, keyFile string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if by == nil {
		by = key
	}
	certDER, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), by)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	err = os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certDER}), 0o600)
	if keyFile != "" {
		err = errors.Join(err, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	}
	return key, err
}
