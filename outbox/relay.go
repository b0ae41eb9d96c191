package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
)

// Relay publishes the events of committed transactions to a bus, and deletes their rows once
// Publish has returned. Call it in every process: one relay is active at a time and the others
// stand by. After a crash of the active one, another takes over within Options.Lease. When ctx
// ends, Relay waits for its calls of Publish, deletes the published rows, releases the lease and
// returns nil; for this it gives the database 10 seconds.
//
// Relay tries again after failures and reports them to Options.OnFailure. It returns an error only
// if trying again can't succeed: an *eventbus.FieldError if to is nil, or an error that matches
// [eventbus.ErrClosed] after the bus was shut down, so end Relay before the bus.
//
// What happens to an event depends on the error of Publish. After an *eventbus.FieldError,
// ErrTooLarge or backend.ErrRefused, Relay moves the event to the refused ones, and later events of
// the key continue. After any other error the key waits, or the whole topic if the error, such as
// ErrFull, concerns all of its events. An event without a key waits alone. Other topics don't wait.
// The delays grow from 100 ms to 30 s.
func (o *Outbox) Relay(ctx context.Context, to eventbus.Publisher) error {
	if to == nil {
		return &eventbus.FieldError{Field: "to", Reason: "is nil"}
	}
	l := o.newLease()
	for {
		until, ok := l.await(ctx)
		if !ok {
			return nil
		}
		o.report.active(true)
		err := l.hold(ctx, until, o.newRelay(to).run)
		o.report.active(false)
		if err == nil && ctx.Err() == nil {
			continue
		}
		if err := o.finally(ctx, l.release); err != nil {
			o.report.failed(Failure{Op: "lease", Err: err})
		}
		if err != nil {
			return fmt.Errorf("outbox: relay of %s: %w", o.options.Table, err)
		}
		return nil
	}
}

// A relay is one period of being the active relay. One goroutine reads and deletes rows, and each
// topic with rows in flight has a goroutine that publishes them.
//
// It keeps the order of a key as follows. If the transaction of row B inserted B after row A was
// committed, then B has the greater number, and every read that sees B also sees A, unless A is
// deleted. A read is ordered by number, and never has B if a hold excludes A, so each relay
// publishes A before B, or A was already published and deleted. This holds for any number of relays
// at once, including one that was frozen and continues. Rows that become visible later need no
// attention, whatever their numbers are, because their transactions committed later.
type relay struct {
	o     *Outbox
	to    eventbus.Publisher
	most  int // rows of the next read
	holds holds
	retry interface { // delays after failures of the database
		NextBackOff() time.Duration
		Reset()
	}

	ended chan *sending   // sendings that have ended
	busy  map[string]bool // topics with rows in flight
	fresh int             // how many of these come from the last read
	size  int             // bytes in flight

	published []int64   // numbers of published rows, to delete
	refused   []refusal // rows to set aside
	closed    error     // the bus was shut down
}

func (o *Outbox) newRelay(to eventbus.Publisher) *relay {
	return &relay{o: o, to: to, most: o.options.Batch, retry: newBackOff(), ended: make(chan *sending), busy: map[string]bool{}}
}

const (
	patience     = 100 * time.Millisecond // how long a slow topic delays the next read of others
	mostRead     = 8 << 20                // bytes of a read; the last row may exceed it
	mostInFlight = 64 << 20               // bytes in flight after which the relay reads no more
	finalBudget  = 5 * time.Second        // for the database after ctx has ended
)

// run publishes rows until ctx ends or the bus is closed.
func (r *relay) run(ctx context.Context) error {
	defer r.finish(ctx)
	for ctx.Err() == nil && r.closed == nil {
		began := time.Now()
		rows, err := r.read(ctx)
		if err != nil {
			r.fail(ctx, "read", err)
			continue
		}
		r.retry.Reset()
		idle := max(r.o.options.Poll, 2*time.Since(began))
		r.send(ctx, rows)
		if len(rows) > 0 {
			idle = patience
		}
		r.collect(ctx, idle, len(rows) > 0)
		r.flush(ctx)
	}
	return r.closed
}

// fail reports a failure of the database, and waits.
func (r *relay) fail(ctx context.Context, op string, err error) {
	if ctx.Err() != nil {
		return
	}
	delay := r.retry.NextBackOff()
	r.o.report.failed(Failure{Op: op, Next: delay, Err: err})
	sleep(ctx, delay)
}

// send starts publishing rows, by topic.
func (r *relay) send(ctx context.Context, rows []row) {
	topics := map[string]*sending{}
	for i := range rows {
		s := topics[rows[i].topic]
		if s == nil {
			s = &sending{to: r.to, topic: rows[i].topic}
			topics[s.topic] = s
		}
		s.rows, s.size = append(s.rows, &rows[i]), s.size+rows[i].size()
	}
	r.fresh = len(topics)
	for topic, s := range topics {
		r.busy[topic] = true
		r.size += s.size
		go func() {
			s.publish(ctx, s.rows)
			r.ended <- s
		}()
	}
}

// collect waits for sendings: until the topics of the last read have ended, or for at most
// patience. If nothing was sent, it waits until any topic has ended. It waits longer if too many
// bytes are in flight.
func (r *relay) collect(ctx context.Context, patience time.Duration, sent bool) {
	over := time.NewTimer(patience)
	defer over.Stop()
	for waiting := true; ; {
		if sent && r.fresh == 0 {
			waiting = false
		}
		if r.size <= mostInFlight && !waiting {
			return
		}
		select {
		case s := <-r.ended:
			r.settle(ctx, s)
			waiting = waiting && sent
		case <-over.C:
			waiting = false
		case <-ctx.Done():
			return
		}
	}
}

// settle processes a sending that has ended.
func (r *relay) settle(ctx context.Context, s *sending) {
	delete(r.busy, s.topic)
	r.size -= s.size
	r.fresh = max(0, r.fresh-1)
	r.o.report.published.Add(int64(len(s.done)))
	r.published = append(r.published, s.done...)
	r.refused = append(r.refused, s.refused...)
	if errors.Is(s.err, eventbus.ErrClosed) {
		r.closed = s.err
	}
	if s.err == nil {
		r.holds.clear(s)
		return
	}
	if ctx.Err() != nil || r.closed != nil {
		return
	}
	delay := r.holds.record(s, time.Now())
	r.o.report.failed(Failure{Op: "publish", Topic: s.topic, Events: len(s.rows) - len(s.done) - len(s.refused), Next: delay, Err: s.err})
}

// flush deletes published rows and sets refused rows aside. It keeps trying until that succeeds,
// because it must not read these rows again, or until ctx ends.
func (r *relay) flush(ctx context.Context) {
	for ctx.Err() == nil && len(r.published)+len(r.refused) > 0 {
		if op, err := r.tidy(ctx); err != nil {
			r.fail(ctx, op, err)
			continue
		}
		r.retry.Reset()
	}
}

// tidy makes one attempt at the work of flush.
func (r *relay) tidy(ctx context.Context) (op string, err error) {
	for len(r.published) > 0 {
		n := min(len(r.published), mostBatch)
		if err := r.o.delete(ctx, r.published[:n]); err != nil {
			return "delete", err
		}
		r.published = r.published[n:]
	}
	r.published = nil
	for len(r.refused) > 0 {
		aside, err := r.o.setAside(ctx, r.refused[0])
		if err != nil {
			return "refuse", err
		}
		r.refused = r.refused[1:]
		r.o.report.setAside(aside)
	}
	return "", nil
}

// finish waits for the rows in flight, whose context has ended, and deletes the published ones. If
// that fails, the next relay publishes them again.
func (r *relay) finish(ctx context.Context) {
	for len(r.busy) > 0 {
		r.settle(ctx, <-r.ended)
	}
	err := r.o.finally(ctx, func(ctx context.Context) error {
		_, err := r.tidy(ctx)
		return err
	})
	if err != nil {
		r.o.report.failed(Failure{Op: "delete", Events: len(r.published), Err: err})
	}
}

// finally calls f with a context that outlives ctx by finalBudget.
func (o *Outbox) finally(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalBudget)
	defer cancel()
	return f(ctx)
}
