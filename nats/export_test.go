package nats

import natsgo "github.com/nats-io/nats.go"

// Connect makes a backend as Open does, on a connection that the test knows.
func Connect(urls string, o Options, options ...natsgo.Option) (*Backend, *natsgo.Conn, error) {
	t := newTap()
	conn, err := natsgo.Connect(urls, append(options, natsgo.SetCustomDialer(&dialer{tap: t}))...)
	if err != nil {
		return nil, nil, err
	}
	b, err := newBackend(conn, t, o)
	return b, conn, err
}
