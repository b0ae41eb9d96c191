package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// A status holds the stage of a subscription and its current troubles, from which the
// subscription's state follows. A trouble shows only in the stage Running.
type status struct {
	facts sync.Mutex // held while a trouble's facts are read and reported; taken before mu

	sub *Subscription

	mu       sync.Mutex
	stage    observer.State                // Starting, Running, Paused, Draining or Closed
	failure  error                         // why the stage is Closed; nil after a drain
	troubles [troubles]map[*consumer]error // by topic; the key nil stands for the whole subscription
	reported observer.State                // the state last reported to the observer
}

// A trouble is a kind of failure that lasts until it is cleared. To add one, add it here, and call
// status.trouble and status.clear where it begins and ends.
type trouble uint8

// Troubles, in the order in which State and Ready name them.
const (
	noReceive    trouble = iota // Receive fails
	noTopics                    // topics can't be listed, so new ones aren't found
	noTokens                    // partitions can't be shared with other members
	limiterFails                // the limiter fails
	noSettle                    // a settlement has failed for longer than a lease
	noDeadLetter                // a dead letter cannot be stored
	allStuck                    // no handler is free, because all have been running for longer than their timeout allows
	crowded                     // too many events are waiting behind others, so none are read; not a fault
	limited                     // the limiter has granted nothing for a while; not a fault
	halted                      // an operator has paused the group; not a fault

	troubles
)

func (t *status) init(s *Subscription) {
	t.sub, t.stage, t.reported = s, observer.Starting, observer.Starting
}

// enter changes the stage and reports it to the observer. Closed is final, and Draining can only be
// followed by Closed. A pause ends the troubles of receiving, because the member receives nothing.
func (t *status) enter(stage observer.State, failure error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == observer.Closed || t.stage == observer.Draining && stage != observer.Closed {
		return
	}
	t.stage, t.failure = stage, failure
	if stage == observer.Paused {
		for _, kind := range []trouble{noReceive, limiterFails, limited, halted} {
			t.troubles[kind] = nil
		}
	}
	t.notify()
}

// trouble records that a failure of a topic persists, with its current error. of is nil for a
// failure of the whole subscription. If this changes the state, the observer is informed.
func (t *status) trouble(kind trouble, of *consumer, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == observer.Paused && (kind == noReceive || kind == limiterFails || kind == limited || kind == halted) {
		return // of a Receive that was ended by the pause
	}
	if of != nil && of.ended {
		return
	}
	if t.troubles[kind] == nil {
		t.troubles[kind] = map[*consumer]error{}
	}
	t.troubles[kind][of] = err
	t.notify()
}

// clear records that a failure is over.
func (t *status) clear(kind trouble, of *consumer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, has := t.troubles[kind][of]; has {
		delete(t.troubles[kind], of)
		t.notify()
	}
}

// notify reports the state to the observer, if it has changed. The caller holds mu.
func (t *status) notify() {
	to, err := t.state()
	if to == t.reported {
		return
	}
	from := t.reported
	t.reported = to
	notify(t.sub.notifier.later.StateChanged, observer.StateChanged{
		Topic: t.sub.Topic, Group: t.sub.Group, From: from, To: to, Err: err,
	})
}

// state returns the state that follows from stage and troubles. The caller holds mu.
func (t *status) state() (observer.State, error) {
	if t.stage != observer.Running {
		return t.stage, t.failure
	}
	if err := t.fault(); err != nil {
		return observer.Degraded, err
	}
	if err := t.halts(); err != nil {
		return observer.Paused, err
	}
	if err := cmp.Or(t.troubles[crowded][nil], t.troubles[limited][nil], errors.Join(t.causes(t.troubles[halted])...)); err != nil {
		return observer.Limited, err
	}
	return observer.Running, nil
}

// halts returns the error that an operator has paused the group in all topics of s, or nil if that
// isn't the case. If only some topics are paused, s is limited. The caller holds mu.
func (t *status) halts() error {
	of := t.troubles[halted]
	if len(of) == 0 || len(of) < t.sub.roundRobin.topicCount() {
		return nil
	}
	if errs := t.causes(of); len(errs) > 1 {
		return errors.Join(errs...)
	}
	return t.causes(of)[0]
}

// fault returns the errors of all troubles that are faults, in order. The caller holds mu.
func (t *status) fault() error {
	var errs []error
	for _, of := range t.troubles[:crowded] {
		errs = append(errs, t.causes(of)...)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// mostCauses limits how many topics a state names for one trouble.
const mostCauses = 8

// causes returns the errors of a trouble. If s has several topics, the errors name their topics and
// are sorted by them. The caller holds mu.
func (t *status) causes(of map[*consumer]error) (errs []error) {
	for _, c := range slices.SortedFunc(maps.Keys(of), byTopic) {
		err := of[c]
		if c != nil && t.sub.roundRobin != nil {
			err = fmt.Errorf("topic %s: %w", c.topic, err)
		}
		errs = append(errs, err)
	}
	if more := len(errs) - mostCauses; more > 0 {
		errs = append(errs[:mostCauses], fmt.Errorf("%d more topics", more))
	}
	return errs
}

func byTopic(x, y *consumer) int {
	if x == nil || y == nil {
		return 0
	}
	return strings.Compare(x.topic, y.topic)
}

// forget clears the troubles of a consumer that has ended, and ignores later ones.
func (t *status) forget(c *consumer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.ended = true
	for _, of := range t.troubles {
		delete(of, c)
	}
	t.notify()
}

// State returns the state of s, and the error that causes it, if any.
func (s *Subscription) State() (observer.State, error) {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return s.status.state()
}

// ready returns a nil error if the subscription works: it hasn't failed permanently, and has no
// trouble that is a fault. A subscription that is draining or paused does what its program asked
// for. Otherwise the state and the error say why not.
func (t *status) ready() (observer.State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	state, _ := t.state()
	switch state {
	case observer.Draining:
		return state, nil
	case observer.Closed:
		return state, t.failure
	case observer.Starting:
		return state, errNotRunning
	}
	return state, t.fault()
}

// reportLedger starts or ends the troubles that follow from the ledger. allStuck means that at
// least Concurrency handlers have been running for too long, and spare workers run in their place.
// crowded means that too many events are waiting without a slot. Since effects are carried out in
// any order, reportLedger reads the ledger itself, one call at a time.
func (s *Subscription) reportLedger() {
	s.status.facts.Lock()
	defer s.status.facts.Unlock()
	s.ledger.mu.Lock()
	now, most := s.ledger.Stats(), s.ledger.Concurrency
	s.ledger.mu.Unlock()
	if now.Stuck < most {
		s.status.clear(allStuck, nil)
	} else {
		s.status.trouble(allStuck, nil, fmt.Errorf("%d handlers have run for more than %v beyond their timeout, %v, and end only with their process; %d more can run at a time", now.Stuck, stuckAfter, s.Timeout, most+now.Spare-now.Stuck))
	}
	if now.Crowded {
		s.status.trouble(crowded, nil, errCrowded)
	} else {
		s.status.clear(crowded, nil)
	}
}

var errCrowded = errors.New("nothing is read: too many events wait behind an event of their key")

// stuckAfter is the time from the timeout of a run until its event is taken away from it. It
// repeats the constant of package ledger, for use in a message.
const stuckAfter = 5 * time.Second
