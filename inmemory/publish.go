package inmemory

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	if err := ctx.Err(); err != nil {
		return failed("publish", fmt.Errorf("%w: %w", backend.ErrUnavailable, err))
	}
	var errs backend.BatchError
	for i := 0; i < len(msgs); {
		end := i + 1
		for end < len(msgs) && msgs[end].Topic == msgs[i].Topic {
			end++
		}
		b.publish(msgs[i:end], func(j int, err error) {
			errs.Set(i+j, len(msgs), failed("publish "+msgs[i].Topic, err))
		})
		i = end
	}
	return backend.AsBatchError(errs)
}

// publish stores messages of one topic. It calls fail for each message that it could not
// store. A Read or Receive of another goroutine sees all stored messages or none.
func (b *Backend) publish(msgs []*backend.Message, fail func(i int, err error)) {
	now := time.Now()
	records := make([]*record, 0, 8)
	for _, m := range msgs {
		records = append(records, &record{message: *m, stored: now})
	}
	own(len(msgs), func(i int) *backend.Message { return &records[i].message }) // without the lock of the topic
	t, err := b.directory.acquire(msgs[0].Topic, b)
	if err != nil {
		for i := range msgs {
			fail(i, err)
		}
		return
	}
	defer t.mu.Unlock()
	for i, m := range msgs {
		if err := t.store(m, records[i]); err != nil {
			fail(i, err)
		}
	}
	for _, g := range t.groups {
		g.alert(now)
	}
}

// store stores r, a copy of m. It returns nil and stores nothing if m is a duplicate. It
// returns an error if a limit is exceeded.
func (t *topic) store(m *backend.Message, r *record) error {
	m.Position, m.Duplicate = "", false
	if m.Once {
		if m.Position, m.Duplicate = t.once.find(m.ID, r.stored); m.Duplicate {
			return nil
		}
	}
	if err := t.backend.ledger.enter(m.Size(), len(t.groups)); err != nil {
		return err
	}
	t.log.store(r)
	m.Position = r.message.Position
	if m.Once {
		t.once.add(m.ID, m.Position, r.stored)
	}
	return nil
}
