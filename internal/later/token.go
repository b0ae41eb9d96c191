package later

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A token lets one Mover of a topic work at a time. It is the only message of a topic of its
// own, and is never acknowledged. The member that has its lease holds it.
type token struct {
	backend backend.Backend
	topic   string
	source  backend.Source
	held    []backend.Delivery
	stop    context.CancelCauseFunc // ends the context of the holder
	ended   chan struct{}           // closed when the token is no longer extended
}

const (
	tokenGroup = "movers"
	tokenLease = 5 * time.Second
	tokenWait  = 2 * time.Second // how long one wait for the token takes
	farewell   = 2 * time.Second // the most time to give the token back
)

// Movers returns the figures of the group whose members are able to publish the scheduled events of a
// topic. One of them does it, if an event of the group is in flight.
func Movers(ctx context.Context, b backend.Backend, topic string) (backend.Stats, error) {
	return backend.StatsOf(ctx, b, tokenTopic(topic), tokenGroup)
}

// openToken attaches to the topic of a token. It creates the token if there is none.
func openToken(ctx context.Context, b backend.Backend, topic string) (*token, error) {
	t := &token{backend: b, topic: tokenTopic(topic)}
	var err error
	t.source, err = b.Attach(ctx, backend.Config{
		Topic: t.topic, Group: tokenGroup, Start: backend.StartEarliest, Lease: tokenLease, MaxInFlight: 2, Notify: func(backend.Notice) {},
	})
	if err != nil {
		return nil, err
	}
	ms, err := backend.Read(ctx, b, t.topic, "", 1)
	if err == nil && len(ms) == 0 {
		m := &backend.Message{Topic: t.topic, ID: "token", Once: backend.LimitsOf(b).OnceWindow > 0}
		err = b.Publish(ctx, []*backend.Message{m})
	}
	if err != nil {
		_ = t.source.Close()
		return nil, err
	}
	return t, nil
}

// wait waits some time for the token. It returns a context that ends when the token is lost,
// or nil if another member holds the token.
func (t *token) wait(ctx context.Context) (held context.Context, err error) {
	waiting, cancel := context.WithTimeout(ctx, tokenWait)
	defer cancel()
	got := time.Now()
	ds, err := t.source.Receive(waiting, 2, 0)
	if len(ds) == 0 {
		if waiting.Err() != nil {
			err = nil
		}
		return nil, err
	}
	t.held = append([]backend.Delivery(nil), ds...)
	if len(ds) > 1 { // two members have created one
		_ = t.source.Ack(ctx, backend.Lend(t.held[1:]))
		t.held = t.held[:1]
	}
	held, t.stop = context.WithCancelCause(ctx)
	t.ended = make(chan struct{})
	go t.extend(held, got)
	return held, nil
}

var errTokenLost = errors.New("another member may have the token")

// extend extends the lease of the token, and ends the context of the holder when the lease may
// be lost.
func (t *token) extend(held context.Context, from time.Time) {
	defer close(t.ended)
	extender, can := t.source.(backend.Extender)
	tick := time.NewTicker(tokenLease / 5)
	defer tick.Stop()
	for {
		select {
		case <-held.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		if can {
			bounded, cancel := context.WithDeadline(held, from.Add(tokenLease))
			err := extender.Extend(bounded, backend.Lend(t.held))
			cancel()
			switch {
			case backend.ErrorAt(err, 0) == nil:
				from = began
			case errors.Is(err, backend.ErrLeaseLost), errors.Is(err, backend.ErrClosed), errors.Is(err, backend.ErrGone):
				t.stop(errTokenLost)
				return
			}
		}
		if time.Since(from) > tokenLease-tokenLease/5 {
			t.stop(errTokenLost)
			return
		}
	}
}

// giveBack gives the token to the other members.
func (t *token) giveBack(ctx context.Context) {
	t.stop(context.Canceled)
	<-t.ended
	if d, ok := t.source.(backend.Delayer); ok && len(t.held) > 0 {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		_ = d.Delay(bye, []backend.Delayed{{Delivery: t.held[0]}}) // if it fails, the lease ends
	}
	t.held = nil
}

func (t *token) close(context.Context) { _ = t.source.Close() }
