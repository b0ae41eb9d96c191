package nats

import natsgo "github.com/nats-io/nats.go"

// Connect makes a backend on a connection of the test.
func Connect(urls string, o Options, options ...natsgo.Option) (*Backend, *natsgo.Conn, error) {
	conn, err := natsgo.Connect(urls, options...)
	if err != nil {
		return nil, nil, err
	}
	b, err := newBackend(conn, conn.Close, o)
	return b, conn, err
}
