package natstest

import (
	"strings"
	"sync"
	"testing"

	natsgo "github.com/nats-io/nats.go"
)

// Client returns an option for a test's own connection. The client waits for startLimit to
// connect, not for the library's 2 seconds, because the machine may be busy. What the library
// would print to stderr, such as "write: broken pipe on connection [3159]", goes to the log of
// the test, and only if the test fails.
func Client(t testing.TB) natsgo.Option {
	c := &complaints{}
	t.Cleanup(func() {
		if text := c.text(); t.Failed() && text != "" {
			t.Logf("the NATS client complained:\n%s", text)
		}
	})
	return func(o *natsgo.Options) error {
		o.Timeout, o.AsyncErrorCB = startLimit, c.add
		return nil
	}
}

// mostComplaints bounds the lines that a test logs about one client.
const mostComplaints = 50

type complaints struct {
	mu    sync.Mutex
	lines []string
}

func (c *complaints) add(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lines) < mostComplaints {
		c.lines = append(c.lines, err.Error())
	}
}

func (c *complaints) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "\n")
}
