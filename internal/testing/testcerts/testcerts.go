// Package testcerts makes certificates for tests of TLS.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certs are the certificates of one test, as PEM files and as client configurations.
type Certs struct {
	CA        string // signed all pairs below except ForeignClient
	ForeignCA string // signed ForeignClient only

	Server        Pair // for a server at 127.0.0.1 and localhost
	Expired       Pair // for a server, valid until yesterday
	WrongName     Pair // for a server, valid for other.example
	Client        Pair
	ForeignClient Pair

	roots, foreign *x509.CertPool
	client         tls.Certificate
	foreignClient  tls.Certificate
}

// Pair are the PEM files of a certificate and its key.
type Pair struct{ Cert, Key string }

// Config returns a client's configuration. The client and a server with [Certs.Server] accept
// each other.
func (c *Certs) Config() *tls.Config {
	return &tls.Config{RootCAs: c.roots, Certificates: []tls.Certificate{c.client}, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

// ForeignConfig returns a configuration that trusts only the foreign authority, so the
// client refuses every server with a certificate of this package.
func (c *Certs) ForeignConfig() *tls.Config {
	config := c.Config()
	config.RootCAs = c.foreign
	return config
}

// AnonymousConfig returns a configuration without a client certificate, so a server refuses
// the client.
func (c *Certs) AnonymousConfig() *tls.Config {
	config := c.Config()
	config.Certificates = nil
	return config
}

// StrangerConfig returns a configuration with a client certificate of the foreign
// authority, so a server refuses the client.
func (c *Certs) StrangerConfig() *tls.Config {
	config := c.Config()
	config.Certificates = []tls.Certificate{c.foreignClient}
	return config
}

// Make creates an authority, a foreign authority, and their certificates. The files are
// removed when the test ends.
func Make(t testing.TB) *Certs {
	t.Helper()
	m := &mint{t: t, dir: t.TempDir()}
	ca, foreign := m.authority("ca"), m.authority("foreign-ca")
	yesterday, tomorrow := time.Now().Add(-24*time.Hour), time.Now().Add(24*time.Hour)
	c := &Certs{
		CA: ca.pair.Cert, ForeignCA: foreign.pair.Cert,
		roots: x509.NewCertPool(), foreign: x509.NewCertPool(),
	}
	c.roots.AddCert(ca.cert)
	c.foreign.AddCert(foreign.cert)
	c.Server = m.sign(ca, "server", tomorrow, "localhost", "127.0.0.1").pair
	c.Expired = m.sign(ca, "expired", yesterday, "localhost", "127.0.0.1").pair
	c.WrongName = m.sign(ca, "wrong-name", tomorrow, "other.example").pair
	client, stranger := m.sign(ca, "client", tomorrow), m.sign(foreign, "foreign-client", tomorrow)
	c.Client, c.client = client.pair, client.forClient()
	c.ForeignClient, c.foreignClient = stranger.pair, stranger.forClient()
	return c
}

// A mint makes the keys and certificates of one test.
type mint struct {
	t      testing.TB
	dir    string
	serial int64
}

// identity is a certificate with its key.
type identity struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pair Pair
}

func (i *identity) forClient() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{i.cert.Raw}, PrivateKey: i.key}
}

func (m *mint) authority(name string) *identity {
	m.t.Helper()
	return m.make(nil, &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-48 * time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
}

// sign makes a server certificate for hosts; without hosts, a client certificate.
func (m *mint) sign(by *identity, name string, until time.Time, hosts ...string) *identity {
	m.t.Helper()
	cert := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotBefore:   time.Now().Add(-48 * time.Hour),
		NotAfter:    until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	return m.make(by, cert)
}

// make makes a certificate that is signed by another certificate, or by itself.
func (m *mint) make(by *identity, template *x509.Certificate) *identity {
	m.t.Helper()
	m.serial++
	template.SerialNumber = big.NewInt(m.serial)
	name := template.Subject.CommonName
	i := &identity{pair: Pair{Cert: filepath.Join(m.dir, name+".pem"), Key: filepath.Join(m.dir, name+".key")}}
	var err error
	i.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	m.check(name, err)
	parent, key := template, i.key
	if by != nil {
		parent, key = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &i.key.PublicKey, key)
	m.check(name, err)
	i.cert, err = x509.ParseCertificate(der)
	m.check(name, err)
	secret, err := x509.MarshalPKCS8PrivateKey(i.key)
	m.check(name, err)
	m.write(i.pair.Cert, "CERTIFICATE", der)
	m.write(i.pair.Key, "PRIVATE KEY", secret)
	return i
}

func (m *mint) write(path, kind string, der []byte) {
	m.t.Helper()
	m.check(path, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (m *mint) check(what string, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("testcerts: %s: %v", what, err)
	}
}
