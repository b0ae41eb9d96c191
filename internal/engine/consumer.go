package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/observer"
)

// A consumer is one topic of a subscription. It has its own attachment to the group, its own
// fetcher and its own settler, so a failing topic doesn't hold up the others. The consumers of a
// subscription share its ledger, workers, lease extender, limiter and counters.
type consumer struct {
	sub        *Subscription
	topic      string        // as the driver names it
	name       string        // as the program names it; for a partition, the topic it belongs to
	deadLetter string        // the dead-letter topic; empty to discard events
	found      bool          // found through a pattern: if the topic is deleted, the consumer ends
	start      backend.Start // where the group starts if it is new

	attachment atomic.Pointer[attachment] // nil until open has succeeded
	barrier    *attachBarrier             // shared by the groups that have just found the topic, or nil
	fetcher    *fetcher
	settler    *settler

	unflushed bool // acknowledgements are waiting for a flush; guarded by the ledger's lock
	ended     bool // guarded by the lock of the status

	partition int                   // number of the partition, if it is one
	claim     *partition.Claim      // ownership of the partition; nil if it isn't shared
	failed    *partition.FailedKeys // passed on to later owners unless nil; guarded by the ledger's lock
	stop      context.CancelFunc    // ends the fetcher of a partition
	fetched   chan struct{}         // closed when the fetcher of a partition has ended
	emptied   chan struct{}         // closed when a partition that ends has no Holds left
	empty     sync.Once             // closes emptied
	parts     sync.Once             // starts leave
	left      sync.Once             // calls Engine.leaveTopic
	full      sync.Once             // reports only once that some failed keys can't be passed on
}

func newConsumer(s *Subscription, topic string, start backend.Start, found bool) *consumer {
	f := &consumer{sub: s, topic: topic, name: topic, deadLetter: s.deadLetter(topic), start: start, found: found}
	if s.Config.Partitions > 0 {
		f.name, f.partition = s.Topic, slices.Index(s.Config.Topics, topic)
	}
	f.fetcher, f.settler = newFetcher(f), newSettler(f)
	return f
}

// consumerOf returns the consumer whose attachment received h.
func consumerOf(h *Hold) *consumer { return attachmentOf(h).consumer }

func attachmentOf(h *Hold) *attachment { return attachmentIn(h.Source) }

func attachmentIn(s *ledger.Source) *attachment { return s.Owner.(*attachment) }

func (f *consumer) about() observer.About {
	return observer.About{Topic: f.name, Group: f.sub.Group}
}

// open attaches to the group.
func (c *consumer) open(ctx context.Context) error {
	if c.claim == nil {
		if err := c.sub.engine.checkDeadLetter(ctx, c.deadLetter); err != nil {
			return err
		}
	}
	a, err := c.attach(ctx, c.start)
	if err != nil {
		return err
	}
	if err := c.sub.check(a); err != nil {
		return errors.Join(err, a.close())
	}
	keys, err := c.inherit(ctx)
	if err != nil {
		return errors.Join(err, a.close())
	}
	c.attachment.Store(a)
	c.sub.ledger.lock()
	c.sub.ledger.Add(a.holds)
	if c.failed = keys; keys != nil {
		a.holds.FailKeys(keys.Keys()...)
	}
	if c.claim != nil {
		c.sub.ledger.TakeOver(a.holds)
	}
	c.sub.ledger.unlock()
	return nil
}

// quit leaves the group. If the group should live only as long as its member, and the backend can't
// delete it by itself, quit deletes it.
func (c *consumer) quit() error {
	a, s := c.attachment.Load(), c.sub
	if a == nil {
		return nil
	}
	err := a.close()
	admin, ok := backend.As[backend.Admin](s.engine.backend)
	if !ok || !s.Ephemeral || s.engine.limits.Ephemeral {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), attachTimeout)
	defer cancel()
	return errors.Join(err, callDriver("DeleteGroup", func() error { return admin.DeleteGroup(ctx, c.topic, s.Group) }))
}

func (c *consumer) attach(ctx context.Context, start backend.Start) (a *attachment, err error) {
	s := c.sub
	if err := s.engine.settings[c.topic].do(ctx); err != nil {
		return nil, err
	}
	var src backend.Source
	err = callDriver("Attach", func() (err error) {
		src, err = s.engine.backend.Attach(ctx, backend.Config{
			Topic: c.topic, Group: s.Group, Start: start, Lease: s.Lease, MaxInFlight: s.MaxInFlight,
			ConfirmAcks: s.Mode != OnSuccess, // a run or a caller is waiting for the answer
			Ephemeral:   s.Ephemeral && s.engine.limits.Ephemeral,
			Notify:      s.notifier.noticed,
			Instance:    s.engine.instance, Incarnation: s.engine.incarnation,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	a = &attachment{consumer: c, source: src, recovery: &s.engine.recovery}
	a.delayer, _ = backend.As[backend.Delayer](src)
	a.extender, _ = backend.As[backend.Extender](src)
	a.holds = &ledger.Source{
		CanDelay: a.delayer != nil, CanExtend: a.extender != nil, Exclusive: c.claim != nil, Owner: a,
		Refunds: a.delayer != nil && s.engine.limits.Refund && c.claim == nil,
	}
	return a, nil
}

// endDeleted ends a consumer whose topic was deleted. Its Holds lose their leases for the reason
// why.
func (c *consumer) endDeleted(why error) {
	s := c.sub
	c.leaveTopic() // first, because Maintain would mistake the end of the group for a fault
	lost := 0
	if a := c.attachment.Load(); a != nil {
		s.ledger.lock()
		lost = s.ledger.LoseAll(a.holds, why)
		s.ledger.Revoke(a.holds)
		s.ledger.unlock()
		_ = a.close() // may fail, because the group is gone
	}
	s.consumers.remove(c)
	s.status.forget(c)
	s.notifier.noticed(backend.Notice{
		Topic: c.topic, Group: s.Group, Err: why,
		Text: fmt.Sprintf("the topic was deleted and left the subscription %s; %d of its events were held here", s.Topic, lost),
	})
}
