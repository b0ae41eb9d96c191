package nats

import (
	"fmt"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
)

// What a server can do is known by its version: older ones ignore what they do
// not know.
var (
	oldest      = version{2, 10}
	readsByMany = version{2, 11} // gives out many messages for one question
)

type version [2]int

func (v version) String() string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

// versionOf returns the version of the server that conn is connected to, or of
// the last one.
func versionOf(conn *natsgo.Conn) (v version, ok bool) {
	n, _ := fmt.Sscanf(conn.ConnectedServerVersion(), "%d.%d", &v[0], &v[1])
	return v, n == 2
}

func (v version) before(w version) bool { return v[0] < w[0] || v[0] == w[0] && v[1] < w[1] }

// checkVersion refuses a server that is too old. One that is not connected yet
// is not asked.
func checkVersion(conn *natsgo.Conn) error {
	if v, ok := versionOf(conn); ok && v.before(oldest) {
		return fmt.Errorf("%w: the server is of version %s; it must be %v or later", backend.ErrRefused, conn.ConnectedServerVersion(), oldest)
	}
	return nil
}
