package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/observer"
)

// An owner lets a subscription work on the partitions that its coordinator gets. Each of them
// is a feed. It is the partition.Owner of the coordinator.
type owner struct {
	sub         *Subscription
	coordinator *partition.Coordinator // nil: the subscription owns no partitions
	parting     sync.WaitGroup         // feeds that end
}

var _ partition.Owner = (*owner)(nil)

// errNotOwned is the error of a call that only the owner of a partition may make.
var errNotOwned = fmt.Errorf("%w: another member may have the partition", backend.ErrLeaseLost)

// owns reports whether the subscription shares the partitions of its topic with other members.
func (c *Config) owns() bool { return c.TokenLease > 0 }

// Divide makes Topic a topic with n partitions. A member of a group that lives with it needs no
// tokens, because it has all partitions.
func (c *Config) Divide(n int) {
	c.Partitions, c.Topics = n, make([]string, n)
	for i := range n {
		c.Topics[i] = partition.Topic(c.Topic, i)
	}
	if !c.Ephemeral {
		c.TokenLease, c.Lease = c.Lease, partition.EventLease(c.Lease)
	}
}

// open makes the group in all partitions, so that it misses no event, and attaches to the tokens.
func (o *owner) open(ctx context.Context) error {
	s := o.sub
	if err := partition.Check(s.engine.backend, s.Topic); err != nil {
		return err
	}
	probe := newFeed(s, s.Config.Topics[0], s.Start, false)
	if err := s.engine.checkDeadLetter(ctx, probe.deadLetter); err != nil {
		return err
	}
	all := map[string]*feed{}
	for _, name := range s.Config.Topics {
		all[name] = newFeed(s, name, s.Start, false)
	}
	made := feeds{byTopic: all, opening: s.feeds.opening}
	err := firstOf(made.each(func(f *feed) error {
		a, err := f.attach(ctx, f.start)
		if err != nil {
			return fmt.Errorf("topic %s: %w", f.topic, err)
		}
		return errors.Join(s.check(a), a.close())
	}))
	if err != nil {
		return err
	}
	return driving("Attach", func() error {
		c, err := partition.Open(ctx, partition.Config{
			Backend: s.engine.backend, Topic: s.Topic, Group: s.Group, Name: s.engine.program, Number: len(s.Config.Topics), Lease: s.TokenLease, Notify: s.notifier.noticed, Owner: o, Guard: driving,
		})
		o.coordinator = c
		return err
	})
}

// start starts the coordinator.
func (o *owner) start() {
	if o.coordinator != nil {
		o.coordinator.Start()
	}
}

// drain begins to give back all partitions.
func (o *owner) drain() {
	if o.coordinator != nil {
		o.coordinator.Drain()
	}
}

// close waits until all feeds have ended, and leaves the tokens.
func (o *owner) close() error {
	if o.coordinator == nil {
		return nil
	}
	o.parting.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lastSettle)
	defer cancel()
	return driving("Close of a Source", func() error { return o.coordinator.Close(ctx) })
}

// Gained begins a feed.
func (o *owner) Gained(c *partition.Claim) {
	s, l := o.sub, &o.sub.feeds
	f := newFeed(s, s.Config.Topics[c.Partition], s.Start, false)
	f.claim, f.fetched, f.emptied = c, make(chan struct{}), make(chan struct{})
	f.fetcher.ctx, f.stop = context.WithCancel(s.ctx)
	f.fetcher.brought = 1 // its events should wait for no round
	l.mu.Lock()
	if s.ctx.Err() != nil {
		l.mu.Unlock()
		c.Ends() // nobody has heard of it
		go o.coordinator.GiveBack(c, true)
		return
	}
	l.byTopic[f.topic] = f
	s.engine.joinTopic(f.topic, s)
	s.turns.share(len(l.byTopic))
	l.fetching.Go(func() {
		defer close(f.fetched)
		f.fetcher.fetch()
	})
	l.mu.Unlock()
	o.tell(c, true, nil)
}

// Shed lets the runs of a feed end, and gives the rest back.
func (o *owner) Shed(c *partition.Claim) {
	if f := o.feed(c); f != nil {
		f.revoke(nil)
		f.part()
	}
}

// Lost ends a feed at once.
func (o *owner) Lost(c *partition.Claim, why error) {
	if f := o.feed(c); f != nil {
		f.revoke(fmt.Errorf("%w: %w", backend.ErrLeaseLost, why))
		f.part()
	}
	o.tellEnd(c, why)
}

// Troubled shows that the coordinator cannot reach the broker; nil: it can.
func (o *owner) Troubled(err error) {
	s := o.sub
	if err == nil {
		s.status.clear(noTokens, nil)
		return
	}
	err = fmt.Errorf("partitions: %w", err)
	s.notifier.failed(observer.Receive, observer.About{Topic: s.Topic, Group: s.Group}, 0, err)
	s.status.trouble(noTokens, nil, err)
}

// Failed ends the subscription.
func (o *owner) Failed(err error) { o.sub.fail(err) }

// tellEnd tells that the partition of c is not owned any more, once.
func (o *owner) tellEnd(c *partition.Claim, why error) {
	if c.Ends() {
		o.tell(c, false, why)
	}
}

func (o *owner) tell(c *partition.Claim, gained bool, why error) {
	s := o.sub
	tell(s.notifier.later.PartitionMoved, observer.PartitionMoved{
		Topic: s.Topic, Group: s.Group, Partition: c.Partition, Epoch: c.Epoch, Gained: gained, Reason: reasonOf(gained, why), Err: why,
	})
}

// reasonOf returns the reason of a move of a partition.
func reasonOf(gained bool, why error) string {
	switch {
	case gained:
		return observer.ReasonGained
	case why == nil:
		return observer.ReasonGivenBack
	case errors.Is(why, partition.ErrTaken):
		return observer.ReasonTaken
	case errors.Is(why, partition.ErrGone):
		return observer.ReasonDeleted
	}
	return observer.ReasonExpired
}

// feed returns the feed of c; nil: it has ended.
func (o *owner) feed(c *partition.Claim) *feed {
	l := &o.sub.feeds
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.byTopic[o.sub.Config.Topics[c.Partition]]; f != nil && f.claim == c {
		return f
	}
	return nil
}

// Owned returns the partitions that the subscription owns now, sorted; nil: it shares none with
// other members.
func (s *Subscription) Owned() (owned []int) {
	if s.owns() {
		owned = []int{}
	}
	for _, f := range s.feeds.all() {
		if f.claim != nil && f.claim.Leases() && s.ctx.Err() == nil {
			owned = append(owned, f.claim.Partition)
		}
	}
	slices.Sort(owned)
	return owned
}

// revoke lets no further event of f begin, and ends its fetcher. If why is not nil, the leases of
// its Holds are lost.
func (f *feed) revoke(why error) {
	s := f.sub
	f.stop()
	a := f.attachment.Load()
	if a == nil {
		return
	}
	s.book.lock()
	if why != nil {
		s.book.LoseAll(a.book, why)
	}
	s.book.Revoke(a.book)
	s.book.unlock()
}

// part waits until f has no Hold, closes it, and gives its partition back.
func (f *feed) part() {
	f.parts.Do(func() { f.sub.owner.parting.Go(f.leave) })
}

func (f *feed) leave() {
	s, c := f.sub, f.claim
	<-f.fetched
	clean := true
	if a := f.attachment.Load(); a != nil {
		f.revoke(nil) // of an attachment that the fetcher has made meanwhile
		s.book.lock()
		s.book.End(a.book)
		s.book.unlock()
		<-f.emptied
		s.book.lock()
		left := time.Duration(a.book.LeasedUntil() - s.book.Now)
		s.book.unlock()
		if left > 0 { // events could not be given back, and are not due before
			clean = c.Leases() && sleep(s.ctx, left)
		}
	}
	f.leaveTopic()
	if a := f.attachment.Load(); a != nil {
		_ = a.close() // may fail, because the connection is lost
	}
	s.feeds.remove(f)
	s.status.forget(f)
	if c.Leases() {
		s.owner.tellEnd(c, nil)
	} else {
		s.owner.tellEnd(c, errNotOwned)
	}
	s.owner.coordinator.GiveBack(c, clean)
}

// leaveTopic undoes joinTopic, once.
func (f *feed) leaveTopic() {
	f.left.Do(func() { f.sub.engine.leaveTopic(f.topic, f.sub.Group) })
}

// Origin returns the topic of h as the program names it, and the partition and epoch of its owner;
// zero: the topic has no partitions.
func Origin(h *Hold) (topic string, number, epoch int) {
	f := feedOf(h)
	if f.claim != nil {
		epoch = f.claim.Epoch
	}
	return f.name, f.partition, epoch
}
