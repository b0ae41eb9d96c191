package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus/observer"
)

// A status has the stage of a subscription, and its present troubles. The state of the
// subscription follows from both: a trouble shows only in the stage Running.
type status struct {
	facts sync.Mutex // held while the facts of a trouble are read and told; taken before mu

	sub *Subscription

	mu       sync.Mutex
	stage    observer.State            // Starting, Running, Paused, Draining or Closed
	failure  error                     // why the stage is Closed; nil after a drain
	troubles [troubles]map[*feed]error // by topic; nil: of the whole subscription
	told     observer.State            // the state that the observer knows
}

// A trouble is a kind of failure that lasts until clear is called for it. To add a trouble,
// add it here, and call status.trouble and status.clear where it begins and ends.
type trouble uint8

// Troubles, in the order in which State and Ready name them.
const (
	noReceive trouble = iota // Receive fails
	noTopics                 // topics cannot be listed, so that new ones are not found
	noTokens                 // partitions cannot be shared with other members
	noPlace                  // the limiter fails
	noSettle                 // a settlement has failed for longer than a lease
	noLetter                 // a dead letter cannot be stored
	allStuck                 // no handler is free, because all run for longer than their timeout allows
	crowded                  // too many events wait behind others, so that none is read; not a fault
	limited                  // the limiter grants nothing for a while; not a fault
	halted                   // an operator has paused the group; not a fault

	troubles
)

func (t *status) init(s *Subscription) {
	t.sub, t.stage, t.told = s, observer.Starting, observer.Starting
}

// enter changes the stage and tells the observer. Closed is final, and after Draining only
// Closed follows. A pause ends the troubles of receiving, because the member receives no more.
func (t *status) enter(stage observer.State, failure error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == observer.Closed || t.stage == observer.Draining && stage != observer.Closed {
		return
	}
	t.stage, t.failure = stage, failure
	if stage == observer.Paused {
		for _, kind := range []trouble{noReceive, noPlace, limited, halted} {
			t.troubles[kind] = nil
		}
	}
	t.tell()
}

// trouble records that a failure of a topic lasts, with its present error; of is nil if it is a
// failure of the whole subscription. It tells the observer if the
// state changes.
func (t *status) trouble(kind trouble, of *feed, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == observer.Paused && (kind == noReceive || kind == noPlace || kind == limited || kind == halted) {
		return // of a Receive that the pause has ended
	}
	if of != nil && of.ended {
		return
	}
	if t.troubles[kind] == nil {
		t.troubles[kind] = map[*feed]error{}
	}
	t.troubles[kind][of] = err
	t.tell()
}

// clear records that a failure is over.
func (t *status) clear(kind trouble, of *feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, has := t.troubles[kind][of]; has {
		delete(t.troubles[kind], of)
		t.tell()
	}
}

// tell tells the observer the state, if it has changed. The caller holds mu.
func (t *status) tell() {
	to, err := t.state()
	if to == t.told {
		return
	}
	from := t.told
	t.told = to
	tell(t.sub.notifier.later.StateChanged, observer.StateChanged{
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

// halts returns the error that an operator has paused the group in all topics of s, or nil. If
// some topics are paused, s is limited. The caller holds mu.
func (t *status) halts() error {
	of := t.troubles[halted]
	if len(of) == 0 || len(of) < t.sub.turns.count() {
		return nil
	}
	if errs := t.causes(of); len(errs) > 1 {
		return errors.Join(errs...)
	}
	return t.causes(of)[0]
}

// fault returns the errors of all troubles that are faults, in their order. The caller holds
// mu.
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

// mostCauses bounds how many topics a state names for one trouble.
const mostCauses = 8

// causes returns the errors of a trouble. If s has many topics, they name the topic, and are
// sorted by it. The caller holds mu.
func (t *status) causes(of map[*feed]error) (errs []error) {
	for _, f := range slices.SortedFunc(maps.Keys(of), byTopic) {
		err := of[f]
		if f != nil && t.sub.turns != nil {
			err = fmt.Errorf("topic %s: %w", f.topic, err)
		}
		errs = append(errs, err)
	}
	if more := len(errs) - mostCauses; more > 0 {
		errs = append(errs[:mostCauses], fmt.Errorf("%d more topics", more))
	}
	return errs
}

func byTopic(x, y *feed) int {
	if x == nil || y == nil {
		return 0
	}
	return strings.Compare(x.topic, y.topic)
}

// forget clears the troubles of a feed that has ended, and ignores later ones.
func (t *status) forget(f *feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.ended = true
	for _, of := range t.troubles {
		delete(of, f)
	}
	t.tell()
}

// State returns the state of s, and the error that causes it now, if any.
func (s *Subscription) State() (observer.State, error) {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return s.status.state()
}

// ready returns a nil error if the subscription works: it has no trouble but a limit, and has
// not failed for good. A subscription that drains or is paused works as its program asked.
// Otherwise the state and the error say why not.
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
