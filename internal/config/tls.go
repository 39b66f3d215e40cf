package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS is for calls over https, and for Redis over TLS.
type TLS struct {
	// CA is a file of certificates in PEM that count beside the system's.
	CA string `yaml:"ca"`
	// Cert is a file in PEM with the certificate that is shown to the other side.
	Cert string `yaml:"cert"`
	// Key is a file in PEM with the certificate's key.
	Key string `yaml:"key"`
	// MinVersion is the lowest version of TLS. The zero value means Go's, `1.2`.
	MinVersion TLSVersion `yaml:"min_version"`
}

// TLSVersion is a version of TLS, as crypto/tls numbers them.
type TLSVersion uint16

// UnmarshalText reads 1.2 or 1.3.
func (v *TLSVersion) UnmarshalText(text []byte) error {
	switch string(text) {
	case "1.2":
		*v = tls.VersionTLS12
	case "1.3":
		*v = tls.VersionTLS13
	default:
		return fmt.Errorf("%q: want 1.2 or 1.3", text)
	}
	return nil
}

// config reads the files. An error begins with the field. Without any field it
// is nil.
func (t TLS) config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: uint16(t.MinVersion)}
	if t.CA != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: %q holds no certificate: want a file in PEM", t.CA)
		}
		c.RootCAs = roots
	}
	if t.Cert != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			return &pair, err
		}
		if _, err := load(nil); err != nil {
			return nil, fmt.Errorf("cert: %w", err)
		}
		// Anew for each connection: certificates are renewed while workers run.
		c.GetClientCertificate = load
	}
	return c, nil
}

// checkTLS reports a certificate without a key, and a key without a certificate.
func (d *decoder) checkTLS(at string) {
	for _, pair := range [][2]string{{"cert", "key"}, {"key", "cert"}} {
		if d.has(join(at, pair[0])) && !d.has(join(at, pair[1])) {
			d.errorf(join(at, pair[0]), "%s is missing: want both, or neither", pair[1])
		}
	}
}
