package redistest

import (
	"testing"

	"github.com/seed41896749/eventbus/internal/testing/testcerts"
)

// settings say how to start a server.
type settings struct {
	args      []string
	lines     []string // more lines of the configuration file
	noAOF     bool
	socket    bool
	socketDir string
	tls       bool
	certs     *Certs
	pair      Pair
	clustered bool
	sentinel  bool
	shared    bool
}

// Option changes how a server is started.
type Option func(*settings)

// Args adds command-line arguments, such as --maxmemory 10mb.
func Args(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// TLS makes the server accept only TLS. The server has certificates of its own, and requires
// clients to have one; see [Server.Certificates].
func TLS() Option {
	return func(s *settings) { s.tls = true }
}

// TLSWith is like TLS, but the server presents the given certificate, one of those in c, for
// example an expired one.
func TLSWith(c *Certs, server Pair) Option {
	return func(s *settings) { s.tls, s.certs, s.pair = true, c, server }
}

// Socket makes the server listen on a unix socket, too; see [Server.Socket].
func Socket() Option {
	return func(s *settings) { s.socket = true }
}

// WithoutAOF makes the server lose its data when it restarts.
func WithoutAOF() Option {
	return func(s *settings) { s.noAOF = true }
}

// lines adds lines to the configuration.
func lines(l ...string) Option {
	return func(s *settings) { s.lines = append(s.lines, l...) }
}

// Certs are the certificates of a server and its clients.
type Certs = testcerts.Certs

// Pair are the PEM files of a certificate and its key.
type Pair = testcerts.Pair

// Certificates makes certificates. Their files are removed when the test ends.
func Certificates(t testing.TB) *Certs {
	t.Helper()
	return testcerts.Make(t)
}
