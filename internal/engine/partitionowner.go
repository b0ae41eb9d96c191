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
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

// A partitionOwner makes a subscription work on the partitions that its coordinator acquires, each
// of which is a consumer. It is the coordinator's partition.Owner.
type partitionOwner struct {
	sub         *Subscription
	coordinator *partition.Coordinator // nil if the subscription doesn't share partitions
	parting     sync.WaitGroup         // consumers that are ending
}

var _ partition.Owner = (*partitionOwner)(nil)

// errNotOwned is the error of a call that only the owner of a partition may make.
var errNotOwned = fmt.Errorf("%w: another member may have the partition", backend.ErrLeaseLost)

// open creates the group in all partitions, so that it misses no events, and attaches to the
// tokens.
func (o *partitionOwner) open(ctx context.Context) error {
	s := o.sub
	if err := partition.Check(s.engine.backend, s.Topic); err != nil {
		return err
	}
	probe := newConsumer(s, s.Config.Topics[0], s.Start, false)
	if err := s.engine.checkDeadLetter(ctx, probe.deadLetter); err != nil {
		return err
	}
	all := map[string]*consumer{}
	for _, name := range s.Config.Topics {
		all[name] = newConsumer(s, name, s.Start, false)
	}
	made := consumers{byTopic: all, opening: s.consumers.opening}
	err := firstOf(made.each(func(c *consumer) error {
		a, err := c.attach(ctx, c.start)
		if err != nil {
			return fmt.Errorf("topic %s: %w", c.topic, err)
		}
		return errors.Join(s.check(a), a.close())
	}))
	if err != nil {
		return err
	}
	return callDriver("Attach", func() error {
		coordinator, err := partition.Open(ctx, partition.Config{
			Backend: s.engine.backend, Topic: s.Topic, Group: s.Group, Name: s.engine.program, Number: len(s.Config.Topics), Lease: s.TokenLease, Notify: s.notifier.noticed, Owner: o, Guard: callDriver,
		})
		o.coordinator = coordinator
		return err
	})
}

// start starts the coordinator.
func (o *partitionOwner) start() {
	if o.coordinator != nil {
		o.coordinator.Start()
	}
}

// drain starts giving back all partitions.
func (o *partitionOwner) drain() {
	if o.coordinator != nil {
		o.coordinator.Drain()
	}
}

// close waits until all consumers have ended, and then leaves the tokens.
func (o *partitionOwner) close() error {
	if o.coordinator == nil {
		return nil
	}
	o.parting.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lastSettle)
	defer cancel()
	return callDriver("Close of a Source", func() error { return o.coordinator.Close(ctx) })
}

// Gained starts a consumer.
func (o *partitionOwner) Gained(claim *partition.Claim) {
	s, l := o.sub, &o.sub.consumers
	c := newConsumer(s, s.Config.Topics[claim.Partition], s.Start, false)
	c.claim, c.fetched, c.emptied = claim, make(chan struct{}), make(chan struct{})
	c.fetcher.ctx, c.stop = context.WithCancel(s.ctx)
	c.fetcher.lastRead = 1 // its events should not wait for a round of idle topics
	l.mu.Lock()
	if s.ctx.Err() != nil {
		l.mu.Unlock()
		claim.Ends() // nobody knows of it yet
		go o.coordinator.GiveBack(claim, true)
		return
	}
	l.byTopic[c.topic] = c
	s.engine.joinTopic(c.topic, s)
	s.roundRobin.setTopics(len(l.byTopic))
	l.fetching.Go(func() {
		defer close(c.fetched)
		c.fetcher.fetch()
	})
	l.mu.Unlock()
	o.notify(claim, true, nil)
}

// Shed lets a consumer's current runs finish, and gives the rest back.
func (o *partitionOwner) Shed(claim *partition.Claim) {
	if c := o.consumerOfClaim(claim); c != nil {
		c.revoke(nil)
		c.part()
	}
}

// Lost ends a consumer at once.
func (o *partitionOwner) Lost(claim *partition.Claim, why error) {
	if c := o.consumerOfClaim(claim); c != nil {
		c.revoke(fmt.Errorf("%w: %w", backend.ErrLeaseLost, why))
		c.part()
	}
	o.notifyEnd(claim, why)
}

// Troubled shows that the coordinator can't reach the broker or, if err is nil, that it can again.
func (o *partitionOwner) Troubled(err error) {
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
func (o *partitionOwner) Failed(err error) { o.sub.fail(err) }

// notifyEnd reports, only once, that the partition of claim is no longer owned.
func (o *partitionOwner) notifyEnd(claim *partition.Claim, why error) {
	if claim.Ends() {
		o.notify(claim, false, why)
	}
}

func (o *partitionOwner) notify(claim *partition.Claim, gained bool, why error) {
	s := o.sub
	notify(s.notifier.later.PartitionMoved, observer.PartitionMoved{
		Topic: s.Topic, Group: s.Group, Partition: claim.Partition, Epoch: claim.Epoch, Gained: gained, Reason: reasonOf(gained, why), Err: why,
	})
}

// reasonOf returns the reason why a partition has moved.
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

// consumerOfClaim returns the consumer of claim, or nil if it has ended.
func (o *partitionOwner) consumerOfClaim(claim *partition.Claim) *consumer {
	l := &o.sub.consumers
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.byTopic[o.sub.Config.Topics[claim.Partition]]; c != nil && c.claim == claim {
		return c
	}
	return nil
}

// Owned returns the partitions that the subscription owns now, sorted, or nil if it doesn't share
// them with other members.
func (s *Subscription) Owned() (owned []int) {
	if s.owns() {
		owned = []int{}
	}
	for _, c := range s.consumers.all() {
		if c.claim != nil && c.claim.Leases() && s.ctx.Err() == nil {
			owned = append(owned, c.claim.Partition)
		}
	}
	slices.Sort(owned)
	return owned
}

// revoke keeps further events of c from starting, and ends its fetcher. If why is not nil, c's
// Holds lose their leases.
func (c *consumer) revoke(why error) {
	s := c.sub
	c.stop()
	a := c.attachment.Load()
	if a == nil {
		return
	}
	s.ledger.lock()
	if why != nil {
		s.ledger.LoseAll(a.holds, why)
	}
	s.ledger.Revoke(a.holds)
	s.ledger.unlock()
}

// part starts waiting until c has no Holds left; then it closes c and gives its partition back.
func (c *consumer) part() {
	c.parts.Do(func() { c.sub.owner.parting.Go(c.leave) })
}

func (c *consumer) leave() {
	s, claim := c.sub, c.claim
	<-c.fetched
	clean := true
	if a := c.attachment.Load(); a != nil {
		c.revoke(nil) // of an attachment that the fetcher has created since
		s.ledger.lock()
		s.ledger.End(a.holds)
		s.ledger.unlock()
		<-c.emptied
		s.ledger.lock()
		left := time.Duration(a.holds.LeasedUntil() - s.ledger.Now)
		s.ledger.unlock()
		if left > 0 { // some events couldn't be given back, and aren't due before then
			clean = claim.Leases() && wait.Sleep(s.ctx, left)
		}
	}
	c.leaveTopic()
	if a := c.attachment.Load(); a != nil {
		_ = a.close() // may fail, because the connection is lost
	}
	s.consumers.remove(c)
	s.status.forget(c)
	if claim.Leases() {
		s.owner.notifyEnd(claim, nil)
	} else {
		s.owner.notifyEnd(claim, errNotOwned)
	}
	s.owner.coordinator.GiveBack(claim, clean)
}

// leaveTopic undoes joinTopic, but only once.
func (c *consumer) leaveTopic() {
	c.left.Do(func() { c.sub.engine.leaveTopic(c.topic, c.sub.Group) })
}

// Origin returns the topic of h as the program names it, and the number and epoch of its partition,
// which are zero if the topic has no partitions.
func Origin(h *Hold) (topic string, number, epoch int) {
	c := consumerOf(h)
	if c.claim != nil {
		epoch = c.claim.Epoch
	}
	return c.name, c.partition, epoch
}
