package demo

import (
	"context"
	"errors"
	"sync"
	"time"
)

// An Account records the outcome of every event in every group. The publisher, the handlers and the reader of dead letters
// report to it. It does not use the counters of the bus, because it checks the bus.
//
// It takes a byte for each event and group, and an entry for each key and group. An event is finished when it was handled
// or its dead letter was read.
type Account struct {
	moved chan struct{} // receives a value when an event was finished

	mu        sync.Mutex
	published int
	groups    []*groupAccount
}

// NewAccount returns an account for the groups of these names.
func NewAccount(groups ...string) *Account {
	a := &Account{moved: make(chan struct{}, 1)}
	for _, name := range groups {
		a.groups = append(a.groups, &groupAccount{name: name, keys: map[string]*keyState{}})
	}
	return a
}

// A groupAccount is the part of an Account about one group.
type groupAccount struct {
	name   string
	events []eventState // events[n-1] is the state of event number n
	keys   map[string]*keyState
	floor  int // the first floor events are all finished
	row    Row
}

// An eventState is the state of one event in one group.
type eventState uint8

const (
	handled   eventState = 1 << 7 // a handler returned nil
	buried    eventState = 1 << 6 // the dead letter of the event was read
	running   eventState = 1 << 5 // a handler is running with the event
	misplaced eventState = 1 << 4 // the event was counted as out of order
	over      eventState = 1 << 3 // the event has failed for good
	runs      eventState = 1<<3 - 1
)

// concluded are the states in which an event needs no further run. At-least-once delivery allows another run all the same,
// which inOrder ignores, because the order of events is the order in which they are first handled.
const concluded = handled | buried | over

// A keyState is the state of one key in one group: the numbers of the last event that needs no further run, and of the
// event that has begun and is not done, or 0 if there is none.
type keyState struct{ last, current int }

// A Row holds the counts of one group.
type Row struct {
	Group        string `json:"group"`
	Published    int    `json:"published"`
	Handled      int    `json:"handled"`
	Retried      int    `json:"retried"` // runs after a failed one
	DeadLettered int    `json:"dead_lettered"`
	Duplicated   int    `json:"duplicated"` // runs or dead letters of an event that was finished or running
	Lost         int    `json:"lost"`       // neither handled nor dead-lettered
	OutOfOrder   int    `json:"out_of_order"`
	Unknown      int    `json:"unknown"` // received but never published
}

// Publish records that n more events are about to be published, and returns the number of
// the first of them.
func (a *Account) Publish(n int) (first int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first = a.published + 1
	a.published += n
	for _, l := range a.groups {
		l.events = append(l.events, make([]eventState, n)...)
	}
	return first
}

// An Outcome is the result of a handler's run.
type Outcome int

const (
	Done  Outcome = iota // the handler returned nil
	Again                // the handler returned an error, and the event is retried
	Over                 // the handler returned an error, and the event is not retried
)

// Begin records that a handler of the group starts with an event. It returns the number of
// the run of this event; the first is 1.
func (a *Account) Begin(group, number int, key string) (run int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.groups[group]
	m := l.state(number)
	if m == nil {
		l.row.Unknown++
		return 1
	}
	switch {
	case *m&(handled|buried|running) != 0:
		l.row.Duplicated++
	case *m&runs > 0:
		l.row.Retried++
	}
	if *m&runs < runs {
		*m++
	}
	*m |= running
	if key != "" && *m&concluded == 0 && !l.inOrder(number, key) && *m&misplaced == 0 {
		*m |= misplaced
		l.row.OutOfOrder++
	}
	return int(*m & runs)
}

// inOrder reports whether an event begins in order: no other event of its key has begun
// without being done, and no later event of the key is done.
func (l *groupAccount) inOrder(number int, key string) bool {
	k := l.keys[key]
	if k == nil {
		k = &keyState{}
		l.keys[key] = k
	}
	ok := (k.current == 0 || k.current == number) && number >= k.last
	k.current = number
	return ok
}

// End records the outcome of a handler's run.
func (a *Account) End(group, number int, key string, o Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.groups[group]
	m := l.state(number)
	if m == nil {
		return
	}
	*m &^= running
	if o == Over {
		*m |= over
	}
	if k := l.keys[key]; k != nil && o != Again {
		k.last = max(k.last, number)
		if k.current == number {
			k.current = 0
		}
	}
	if o == Done && *m&handled == 0 {
		*m |= handled
		l.row.Handled++
		if *m&buried != 0 { // the event was handled after its dead letter was read
			l.row.DeadLettered--
			l.row.Duplicated++
		}
		a.finish(l)
	}
}

// Bury records that the dead letter of an event was read.
func (a *Account) Bury(group, number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.groups[group]
	m := l.state(number)
	switch {
	case m == nil:
		l.row.Unknown++
	case *m&(handled|buried) != 0:
		l.row.Duplicated++
	default:
		*m |= buried
		l.row.DeadLettered++
		a.finish(l)
	}
}

func (l *groupAccount) state(number int) *eventState {
	if number < 1 || number > len(l.events) {
		return nil
	}
	return &l.events[number-1]
}

func (a *Account) finish(l *groupAccount) {
	for l.floor < len(l.events) && l.events[l.floor]&(handled|buried) != 0 {
		l.floor++
	}
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

// ErrStalled means that some published events are not finished, and that no event was
// finished for the time given to Wait.
var ErrStalled = errors.New("nothing is handled anymore")

// Wait waits until, in every group, all events except the last n published are finished.
// With n = 0 it waits until every event is finished. Wait has one caller at a time.
func (a *Account) Wait(ctx context.Context, n int, stall time.Duration) error {
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for a.behind() > n {
		select {
		case <-a.moved:
			timer.Reset(stall)
		case <-timer.C:
			return ErrStalled
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// behind returns how many events were published since the oldest unfinished event, with
// that event included. It is the greatest such number of all groups.
func (a *Account) behind() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := 0
	for _, l := range a.groups {
		most = max(most, len(l.events)-l.floor)
	}
	return most
}

// Rows returns a row for each group, in the order given to NewAccount.
func (a *Account) Rows() []Row {
	a.mu.Lock()
	defer a.mu.Unlock()
	rows := make([]Row, len(a.groups))
	for i, l := range a.groups {
		r := l.row
		r.Group, r.Published = l.name, a.published
		r.Lost = r.Published - r.Handled - r.DeadLettered
		rows[i] = r
	}
	return rows
}
