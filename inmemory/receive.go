package inmemory

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A receipt is the Token of a delivery. The delivery is the last one of its message only if
// the receipt and the entry have the same handout.
type receipt struct {
	entry   *entry
	handout uint64
	attempt int
	again   bool
	record  *record // nil after Receive has copied the message
}

// Receive implements [backend.Source]. If ctx is done, it delivers nothing even if messages
// are due. They stay due, so no message is lost.
func (s *source) Receive(ctx context.Context, limit int) ([]backend.Delivery, error) {
	s.loan.Return()
	receipts, err := s.await(ctx, limit)
	if len(receipts) == 0 {
		return nil, failed("receive "+s.group.path, err)
	}
	ds := s.loan.Lend(s.loan.Room(nil, len(receipts))[:len(receipts)])
	for i := range receipts {
		r := &receipts[i]
		ds[i] = backend.Delivery{Message: r.record.message, Attempt: r.attempt, Redelivered: r.again, Token: r}
		if r.record.removed {
			ds[i].Err = errRemoved
		}
		r.record = nil
	}
	own(len(ds), func(i int) *backend.Message { return &ds[i].Message }) // without the lock of the topic
	return ds, nil
}

// await waits until messages are due and takes at most limit of them.
func (s *source) await(ctx context.Context, limit int) (receipts []receipt, err error) {
	g := s.group
	g.topic.mu.Lock()
	defer g.topic.mu.Unlock()
	for {
		now := time.Now()
		if err = s.err; err == nil {
			err = ctx.Err()
		}
		if err == nil && limit > 0 {
			receipts = g.take(limit, now, now.Add(s.lease))
		}
		if err != nil || limit <= 0 || len(receipts) > 0 {
			g.alert(now)
			return receipts, err
		}
		s.wait(ctx)
	}
}

// wait unlocks the topic, waits until a message may be due, and locks the topic again. It
// also returns when ctx is done or the member has ended.
func (s *source) wait(ctx context.Context) {
	g := s.group
	g.waiting++
	g.alert(time.Now())
	g.topic.mu.Unlock()
	select {
	case <-g.wake:
	case <-g.timer.C:
	case <-s.ended:
	case <-ctx.Done():
	}
	g.topic.mu.Lock()
	g.waiting--
}
