package brokerurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSFiles names the PEM files of a TLS connection; "" means none.
type TLSFiles struct {
	CA        string // certificates of the authorities to trust instead of the system's
	Cert, Key string // the client's own certificate and its key
}

// Parameters returns the parameters ca_file, cert_file and key_file.
func (f *TLSFiles) Parameters() Table {
	return Table{"ca_file": Path(&f.CA), "cert_file": Path(&f.Cert), "key_file": Path(&f.Key)}
}

// Given reports whether any file is named.
func (f *TLSFiles) Given() bool { return *f != TLSFiles{} }

// Config reads the files and returns a client configuration, which always verifies the server's
// certificate.
func (f *TLSFiles) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("parameter %q: %w", "ca_file", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("parameter %q: %s has no certificate", "ca_file", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New(`the parameters "cert_file" and "key_file" come together`)
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("parameter %q: %w", "cert_file", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
