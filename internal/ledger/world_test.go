package ledger

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A world has a broker and the members of one group. Time passes only from one thing on the agenda
// to the next. Everything random comes from one generator, so a life can be replayed.
type world struct {
	dice    *rand.Rand
	now     Instant
	agenda  agenda
	count   int
	refunds bool // the broker refunds attempts, and redelivers by position
	quick   bool // most runs take microseconds
	audited bool // the ledgers are checked after every step, which takes three times as long
	trouble trouble
	msgs    []*msg
	keys    [][]*msg // in the order of publishing
	members []*member
	broken  []string
	history []string
	tell    bool
}

// A trouble is how the network between members and broker misbehaves.
type trouble struct {
	slow  time.Duration // longest time a call takes in each direction
	fails int           // of 10 calls, how many fail without taking effect
	lost  int           // of 10 calls, how many take effect but lose their answer
}

// A msg is a message as the broker sees it.
type msg struct {
	id      int
	key     int
	pos     string
	due     Instant
	handout int // number of the current delivery
	holder  *member
	done    bool
	again   bool // delivered before
	attempt int

	owner   *member // the member that received it last and hasn't been told of a loss since
	since   Instant
	acked   *member // the member whose acknowledgement of it was confirmed
	runs    int
	handled bool // a run has succeeded
}

// A thing happens at a set time.
type thing struct {
	at    Instant
	order int
	do    func()
}

type agenda []thing

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(thing)) }
func (a *agenda) Pop() any {
	x := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return x
}

func (w *world) at(m Instant, do func()) {
	w.count++
	heap.Push(&w.agenda, thing{max(m, w.now), w.count, do})
}

func (w *world) in(d time.Duration, do func()) { w.at(w.now.Plus(d), do) }

// runUntil lets time pass until end.
func (w *world) runUntil(end Instant) {
	for len(w.agenda) > 0 && w.agenda[0].at <= end {
		t := heap.Pop(&w.agenda).(thing)
		w.now = t.at
		t.do()
	}
	w.now = end
}

func (w *world) note(format string, args ...any) {
	if w.tell {
		w.history = append(w.history, fmt.Sprintf("%v: ", time.Duration(w.now))+fmt.Sprintf(format, args...))
	}
}

func (w *world) breaks(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.note("BROKEN: %s", text)
	w.broken = append(w.broken, fmt.Sprintf("after %v: %s", time.Duration(w.now), text))
}

func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.dice.Int64N(int64(d) + 1))
}

// way returns how long a call takes in one direction.
func (w *world) way() time.Duration { return w.upTo(w.trouble.slow) }

var errWire = fmt.Errorf("%w: the wire", backend.ErrUnavailable)

// call lets a call take effect at the broker, and then answers it. A call that fails has no effect.
// If the answer is lost, answer gets ErrUnknownOutcome.
func (w *world) call(effect func() any, answer func(result any, err error)) {
	fails, lost := w.dice.IntN(10) < w.trouble.fails, w.dice.IntN(10) < w.trouble.lost
	w.in(w.way(), func() {
		var result any
		err := errWire
		if !fails {
			result, err = effect(), nil
		}
		if lost && !fails {
			err = backend.ErrUnknownOutcome
		}
		w.in(w.way(), func() { answer(result, err) })
	})
}

func (w *world) publish(key int) {
	m := &msg{id: len(w.msgs), key: key, pos: fmt.Sprintf("%08d", len(w.msgs)), due: w.now}
	w.msgs = append(w.msgs, m)
	w.keys[key] = append(w.keys[key], m)
	w.note("%d of key %d is published", m.id, key)
	w.wake()
}

// wake makes the waiting reads look again.
func (w *world) wake() {
	for _, m := range w.members {
		if m.poll != nil {
			m.poll.look()
		}
	}
}

// deliver delivers at most n messages that are due.
func (w *world) deliver(to *member, n int) (ds []backend.Delivery) {
	var due []*msg
	for _, m := range w.msgs {
		if !m.done && m.due <= w.now {
			due = append(due, m)
		}
	}
	if !w.refunds { // redelivered messages come first, in no particular order
		w.dice.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		slices.SortStableFunc(due, func(x, y *msg) int {
			switch {
			case x.again && y.again:
				return 0
			case x.again:
				return -1
			case y.again:
				return 1
			}
			return cmp.Compare(x.id, y.id)
		})
	}
	for _, m := range due[:min(n, len(due))] {
		m.handout++
		m.attempt++
		m.holder, m.due = to, w.now.Plus(lease)
		m.owner = nil
		ds = append(ds, backend.Delivery{
			Message: backend.Message{ID: fmt.Sprint(m.id), Key: fmt.Sprint("k", m.key), Position: m.pos},
			Attempt: m.attempt, Redelivered: m.again, Token: m.handout,
		})
		m.again = true
		w.at(m.due, w.wake)
	}
	return ds
}

// of returns the message of a delivery, and whether that delivery is the current one.
func (w *world) of(d *backend.Delivery) (*msg, bool) {
	var id int
	_, _ = fmt.Sscan(d.ID, &id)
	m := w.msgs[id]
	return m, d.Token == m.handout && !m.done
}

func (w *world) ack(d *backend.Delivery) error {
	m, _ := w.of(d)
	m.done = true
	return nil
}

func (w *world) delay(d *backend.Delivery, after time.Duration, counted bool) error {
	m, present := w.of(d)
	if !present {
		return backend.ErrLeaseLost
	}
	m.due, m.holder = w.now.Plus(after), nil
	m.handout++
	if w.refunds && !counted {
		m.attempt--
	}
	w.at(m.due, w.wake)
	return nil
}

func (w *world) extend(d *backend.Delivery) error {
	m, present := w.of(d)
	if !present || m.holder == nil {
		return backend.ErrLeaseLost
	}
	m.due = w.now.Plus(lease)
	w.at(m.due, w.wake)
	return nil
}

const lease = 6 * time.Second

var errRun = errors.New("no")
