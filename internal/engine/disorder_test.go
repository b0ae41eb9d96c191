package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// Leases are lost, the backend counts attempts anew, calls are slow and fail, handlers fail
// and take their time: of each key nothing runs before all before it has succeeded, nor
// two at once; and everything does in the end. More seeds find more.
func TestOrderWhateverHappens(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) { newDisorder(r, seed).run() })
		})
	}
}

// A disorder is one random life of a subscription whose backend can Delay. No other
// member takes what is its own, and an Extend that takes effect is answered: otherwise
// what is behind may be let go (decision 003, 2).
type disorder struct {
	*rig
	dice *rand.Rand // of the test
	sent map[string]int

	mu     sync.Mutex
	luck   *rand.Rand // of handlers
	calm   bool
	next   map[string]int // of each key, the first that has not succeeded
	runs   map[string]int // of each key
	broken []string
}

func newDisorder(r *rig, seed uint64) *disorder {
	r.wire.noRefund = seed%4 == 3
	r.limits = r.wire.Limits()
	return &disorder{
		rig: r, dice: rand.New(rand.NewPCG(seed, 0)), luck: rand.New(rand.NewPCG(seed, 1)),
		sent: map[string]int{}, next: map[string]int{}, runs: map[string]int{},
	}
}

func (x *disorder) run() {
	backoff := time.Duration(100+100*x.dice.IntN(20)) * time.Millisecond
	s := x.sub(Config{
		Lease: 6 * time.Second, Order: ByKey, Concurrency: 1 + x.dice.IntN(6), MaxInFlight: []int{3, 20, 200}[x.dice.IntN(3)],
		Policy: Policy{Backoff: func(int) time.Duration { return backoff }},
	}, x.handle)
	for range 60 {
		x.step(s)
		x.pass(time.Duration(x.dice.Int64N(int64(1500 * time.Millisecond))))
	}
	for _, verb := range []string{"ack", "delay", "extend"} {
		x.wire.fail(verb, nil)
		x.wire.delay(verb, 0)
	}
	x.wire.amnesia.Store(false)
	x.mu.Lock()
	x.calm = true
	x.mu.Unlock()
	s.Resume()
	x.pass(time.Minute)
	require.Empty(x, x.broken)
	require.Equal(x, x.sent, x.next)
}

// step does something at random.
func (x *disorder) step(s *Subscription) {
	verbs := []string{"ack", "delay", "extend"}
	switch x.dice.IntN(11) {
	case 0, 1:
		x.wire.fail("extend", []error{errDown, nil}[x.dice.IntN(2)]) // leases are lost
	case 2:
		x.wire.amnesia.Store(!x.wire.amnesia.Load())
	case 3:
		x.wire.delay(verbs[x.dice.IntN(2)], time.Duration(x.dice.IntN(3))*400*time.Millisecond)
	case 4:
		x.wire.fail(verbs[x.dice.IntN(3)], []error{errDown, backend.ErrUnavailable, nil, nil}[x.dice.IntN(4)])
	case 5:
		if x.dice.IntN(3) == 0 {
			s.Pause()
		}
	case 6:
		s.Resume()
	default:
		for range 1 + x.dice.IntN(8) {
			key := string('a' + rune(x.dice.IntN(5)))
			x.publishKeyed(key, strconv.Itoa(x.sent[key]))
			x.sent[key]++
		}
	}
}

// handle is a handler of any kind.
func (x *disorder) handle(ctx context.Context, h *Hold) error {
	key := h.Delivery().Key
	n, _ := strconv.Atoi(h.Delivery().ID)
	x.mu.Lock()
	if n > x.next[key] {
		x.broken = append(x.broken, fmt.Sprintf("after %v: %s%d before %s%d", x.at(), key, n, key, x.next[key]))
	}
	if x.runs[key]++; x.runs[key] > 1 {
		x.broken = append(x.broken, fmt.Sprintf("after %v: %s%d beside another", x.at(), key, n))
	}
	what, d := x.luck.IntN(14), time.Duration(x.luck.IntN(400))*time.Millisecond
	if x.calm {
		what = 13
	}
	x.mu.Unlock()
	err := behave(ctx, what, d)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.runs[key]--
	if err == nil && n == x.next[key] {
		x.next[key]++
	}
	return err
}

func behave(ctx context.Context, what int, d time.Duration) error {
	switch what {
	case 0:
		return errors.New("no")
	case 1:
		return Snooze(10 * d)
	case 2:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * d):
			return nil
		}
	case 3:
		time.Sleep(20 * d)
		return RetryAfter(errors.New("no"), 5*d)
	case 4:
		return RetryAfter(errors.New("no"), d/4)
	}
	time.Sleep(d / 8)
	return nil
}
