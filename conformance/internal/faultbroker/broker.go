// Package faultbroker turns a backend in memory into a broker that tests can harm. A connection
// in memory replaces the sockets of each client, so laws about faults can run on a fake clock.
package faultbroker

import (
	"context"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/verbs"
)

// A Broker serves several clients. No fault removes its messages, except [Broker.Lose].
type Broker struct {
	store Store

	mu      sync.Mutex
	clients []*Client
	lost    map[[2]string]bool // lost messages; a key is a topic and a position
}

// New returns a broker that keeps its messages in store.
func New(store Store) *Broker { return &Broker{store: store, lost: map[[2]string]bool{}} }

// Client returns a new client.
func (b *Broker) Client() *Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &Client{broker: b, connection: newConnection(), done: make(chan struct{})}
	c.Verbs = verbs.Verbs{Of: b.store, Around: func(ctx context.Context, verb, _ string, do func() error) error {
		kind := ""
		if verb == "Settle" { // an acknowledgement too
			kind = "ack"
		}
		return c.call(ctx, kind, do)
	}}
	b.clients = append(b.clients, c)
	return c
}

// restartTime is how long the broker is unreachable after Kill.
const restartTime = 300 * time.Millisecond

// Kill makes the broker unreachable for restartTime, and breaks requests that are under
// way.
func (b *Broker) Kill() {
	b.mu.Lock()
	clients := b.clients
	b.mu.Unlock()
	for _, c := range clients {
		defer c.Down()()
	}
	time.Sleep(restartTime)
}

// Lose removes a message. If a group has already received the message, the message is
// redelivered to this group with [backend.ErrGone]. Other groups never receive it.
func (b *Broker) Lose(topic, position string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost[[2]string{topic, position}] = true
}

func (b *Broker) isLost(m *backend.Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost[[2]string{m.Topic, m.Position}]
}
