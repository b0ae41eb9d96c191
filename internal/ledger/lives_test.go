package ledger

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The broker is slow, calls fail, answers get lost, leases are lost. Members join, pause and
// resume; handlers fail or are slow. Within a member, while its leases hold, a message runs only
// after all earlier messages with its key have succeeded. No two messages with the same key run at
// once, none runs after its acknowledgement was confirmed, and each succeeds within two minutes of
// the last failure. Every message has a key, and no life uses manual mode, AckOnReceive, batches,
// FailAll or LeaveTimeouts. EVENTBUS_LEDGER_LIVES sets how many random lives to run, and
// EVENTBUS_LEDGER_LIFE picks a single one.
func TestLives(t *testing.T) {
	first, lives := uint64(0), uint64(4_000)
	if n, err := strconv.ParseUint(os.Getenv("EVENTBUS_LEDGER_LIVES"), 10, 64); err == nil {
		lives = n
	}
	if n, err := strconv.ParseUint(os.Getenv("EVENTBUS_LEDGER_LIFE"), 10, 64); err == nil {
		first, lives = n, 1
	}
	const parts = 8
	for part := range uint64(parts) {
		t.Run(strconv.Itoa(int(part)), func(t *testing.T) {
			t.Parallel()
			for seed := first + part; seed < first+lives; seed += parts {
				if w := live(seed, false); len(w.broken) > 0 {
					w = live(seed, true)
					require.Empty(t, w.broken, "life %d, history:\n%s", seed, strings.Join(w.history, "\n"))
				}
			}
		})
	}
}

// live lives a random life.
func live(seed uint64, tell bool) *world {
	w := &world{dice: rand.New(rand.NewPCG(seed, 7)), now: 1, refunds: seed%4 != 3, quick: seed%3 == 1, audited: seed%7 == 0, tell: tell}
	calm := false
	w.keys = make([][]*msg, []int{1, 4, 12}[w.dice.IntN(3)])
	w.trouble.slow = 2 * time.Millisecond
	for range 1 + seed%2 {
		c := Config{
			Order: ByKey, Concurrency: 1 + w.dice.IntN(4), MaxInFlight: []int{4, 12, 100}[w.dice.IntN(3)], Lease: lease,
			Timeout: []time.Duration{0, 5 * time.Second}[w.dice.IntN(2)],
		}
		c.MaxRedelivered = (c.Concurrency - 1) / 2
		c.MaxParked = []int{2, 8, 16 * c.MaxInFlight}[w.dice.IntN(3)]
		w.join(c, &calm)
	}
	for range 25 {
		w.step()
		w.runUntil(w.now.Plus(w.upTo(1500 * time.Millisecond)))
	}
	calm = true
	w.trouble = trouble{slow: 2 * time.Millisecond}
	for _, m := range w.members {
		if m.paused {
			m.paused, m.asleep = false, false
			m.fetch()
		}
	}
	w.runUntil(w.now.Plus(2 * time.Minute))
	for _, m := range w.members {
		w.note("member %d, %d places, reads %v, polls %v: %s", m.name, m.places, m.reads, m.poll != nil, m.l.dump())
	}
	for _, m := range w.msgs {
		if !m.done {
			w.breaks("message %d is not done: %d runs", m.id, m.runs)
		}
	}
	return w
}

// step does something at random.
func (w *world) step() {
	m := w.members[w.dice.IntN(len(w.members))]
	switch w.dice.IntN(10) {
	case 0:
		w.trouble.slow = []time.Duration{2 * time.Millisecond, 300 * time.Millisecond, 4 * time.Second}[w.dice.IntN(3)]
	case 1:
		w.trouble.fails = []int{0, 0, 3, 10}[w.dice.IntN(4)]
	case 2:
		w.trouble.lost = []int{0, 0, 2, 5}[w.dice.IntN(4)]
	case 3:
		if m.paused {
			m.asleep = false
		}
		m.paused = w.dice.IntN(3) == 0
		m.fetch()
	case 4:
		w.trouble = trouble{slow: 2 * time.Millisecond}
	case 5:
		m.use(func(l *Ledger) { l.Resize(l.MaxRedelivered + 1 + w.dice.IntN(6)) })
	default:
		for range 1 + w.dice.IntN(2*len(w.keys)) {
			w.publish(w.dice.IntN(len(w.keys)))
		}
	}
}
