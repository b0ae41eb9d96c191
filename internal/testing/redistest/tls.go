package redistest

import (
	"testing"

	"github.com/seed41896749/eventbus/internal/testing/testcerts"
)

// Certs are the certificates of a server and its clients.
type Certs = testcerts.Certs

// Pair are the PEM files of a certificate and its key.
type Pair = testcerts.Pair

// Certificates makes certificates; their files are removed when the test ends.
func Certificates(t testing.TB) *Certs {
	t.Helper()
	return testcerts.Make(t)
}
