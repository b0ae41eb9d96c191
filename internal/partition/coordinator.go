package partition

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// An Owner works on the partitions that a Coordinator gets for it. The methods return soon, and
// are called one at a time for each partition.
type Owner interface {
	// Gained tells that the partition of c is owned from now on.
	Gained(c *Claim)

	// Shed asks the Owner to end its work on a partition, and then to call GiveBack.
	Shed(c *Claim)

	// Lost tells that a partition is not owned any more, because of why: ErrExpired, ErrTaken or
	// ErrGone.
	Lost(c *Claim, why error)

	// Troubled tells that a call to the broker has failed; nil: the calls succeed again.
	Troubled(err error)

	// Failed tells that the Coordinator cannot go on, because the backend is closed, or the topic has
	// another number of partitions.
	Failed(err error)
}

// Config of a Coordinator. Every field is set, but for Name.
type Config struct {
	Backend      backend.Backend
	Topic, Group string
	Name         string        // of the process, for operators; may be empty
	Number       int           // of partitions
	Lease        time.Duration // of tokens
	Notify       func(backend.Notice)
	Owner        Owner

	// Guard calls f, which calls a method of the driver, and returns its error, or an error if f
	// panics.
	Guard func(method string, f func() error) error
}

// A Coordinator takes, extends and gives back the tokens of one member of a group, so that each
// member has its share.
//
// It has three goroutines from Start to Close: keep extends the tokens, beat tells and learns
// which members there are, and take waits for tokens while the member has fewer than its share.
type Coordinator struct {
	Config
	id     string
	roster roster
	census census
	heed   heed

	ctx        context.Context // done after Drain or Close: no token is taken, and no note is written
	stop       context.CancelFunc
	live       context.Context // done after Close
	end        context.CancelFunc
	joined     sync.WaitGroup // take and beat
	keeping    sync.WaitGroup // keep
	wakeTake   chan struct{}
	wakeKeep   chan struct{}
	emptied    chan struct{} // gets a value when there is no claim
	telling    sync.Mutex    // held for each call of the Owner, so that they have the order of the events
	troubles   map[string]bool
	troublesMu sync.Mutex

	mu      sync.Mutex
	tokens  *tokens
	claims  map[int]*Claim
	quota   int // 0: not known yet
	drains  bool
	waiting context.CancelFunc // ends the Receive under way of take; nil: there is none
	expiry  *time.Timer        // calls expire when the first claim may not lease any more
}

const (
	takeWait = time.Second // the longest wait of one Receive of tokens
	callTime = 5 * time.Second
)

// The reasons of Owner.Lost.
var (
	ErrExpired = errors.New("eventbus: the lease of the partition was not extended in time")
	ErrTaken   = errors.New("eventbus: another member has the partition")
	ErrGone    = errors.New("eventbus: the tokens of the partitions were deleted")
)

// Open attaches to the owners' topic. Start starts the work, and Close ends it.
func Open(ctx context.Context, c Config) (*Coordinator, error) {
	x := &Coordinator{
		Config: c, id: rand.Text(), claims: map[int]*Claim{}, troubles: map[string]bool{},
		wakeTake: make(chan struct{}, 1), wakeKeep: make(chan struct{}, 1), emptied: make(chan struct{}, 1),
	}
	x.Notify = func(n backend.Notice) {
		if x.live.Err() == nil { // later, a backend in memory would tell that the tokens are lost with it
			c.Notify(n)
		}
	}
	x.roster = roster{backend: c.Backend, topic: MembersTopic(c.Topic), group: c.Group, name: c.Name, id: x.id}
	x.ctx, x.stop = context.WithCancel(context.Background()) //nolint:forbidigo // Drain ends it
	x.live, x.end = context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	var err error
	if x.tokens, err = openTokens(ctx, c.Backend, c.Topic, c.Group, c.Number, c.Lease, x.Notify); err != nil {
		return nil, err
	}
	x.expiry = time.AfterFunc(time.Hour, x.expire)
	x.expiry.Stop()
	return x, nil
}

// Start starts the goroutines.
func (x *Coordinator) Start() {
	x.joined.Go(x.beat)
	x.joined.Go(x.take)
	x.keeping.Go(x.keep)
}

// Owned returns the claims, sorted by partition.
func (x *Coordinator) Owned() []*Claim {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sorted()
}

// sorted returns the claims, sorted by partition. The caller holds mu.
func (x *Coordinator) sorted() []*Claim {
	claims := make([]*Claim, 0, len(x.claims))
	for _, p := range slices.Sorted(maps.Keys(x.claims)) {
		claims = append(claims, x.claims[p])
	}
	return claims
}

// renewEvery returns the time between two extensions of tokens: four fit into the time in which
// one must succeed.
func (x *Coordinator) renewEvery() time.Duration { return window(x.Lease) / 4 }

// keep extends the tokens.
func (x *Coordinator) keep() {
	for {
		next := x.renewEvery()
		if !x.renew() {
			next /= 4
		}
		select {
		case <-time.After(next):
		case <-x.wakeKeep:
		case <-x.live.Done():
			return
		}
	}
}

// renew extends all tokens, and reports whether the broker has answered.
func (x *Coordinator) renew() bool {
	x.expire()
	x.mu.Lock()
	claims, t := x.sorted(), x.tokens
	x.mu.Unlock()
	if len(claims) == 0 {
		x.trouble("extend", nil)
		return true
	}
	err := x.extend(t, claims)
	x.trouble("extend", err)
	return err == nil
}

// extend extends the tokens of claims, and loses the claims whose token another member has.
func (x *Coordinator) extend(t *tokens, claims []*Claim) error {
	until := claims[0].Until()
	for _, c := range claims {
		if at := c.Until(); at.Before(until) {
			until = at
		}
	}
	ctx, cancel := context.WithDeadline(x.live, until)
	defer cancel()
	var lost []*Claim
	err := x.Guard("Extend", func() (err error) { lost, err = t.extend(ctx, claims); return err })
	for _, c := range lost {
		x.lose(c, ErrTaken)
	}
	x.watch()
	return err
}

// watch sets the timer of expire.
func (x *Coordinator) watch() {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := time.Duration(0)
	for _, c := range x.claims {
		if left := max(time.Until(c.Until()), time.Millisecond); next == 0 || left < next {
			next = left
		}
	}
	if next > 0 && x.live.Err() == nil {
		x.expiry.Reset(next)
	}
}

// expire loses the claims that were not extended in time.
func (x *Coordinator) expire() {
	for _, c := range x.Owned() {
		if !c.Leases() {
			x.lose(c, ErrExpired)
		}
	}
	x.watch()
}

// lose ends a claim at once.
func (x *Coordinator) lose(c *Claim, why error) {
	x.telling.Lock()
	defer x.telling.Unlock()
	c.lost.Store(true)
	if x.forget(c) {
		x.Owner.Lost(c, why)
		wake(x.wakeTake)
	}
}

// forget removes c, and reports whether it was there.
func (x *Coordinator) forget(c *Claim) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.claims[c.Partition] != c {
		return false
	}
	delete(x.claims, c.Partition)
	if len(x.claims) == 0 {
		wake(x.emptied)
	}
	return true
}

// GiveBack ends a claim after Shed. With clean, no event of the partition is leased any more,
// so that the token is given back at once. Otherwise, or if that fails for the time of a lease, the
// token is due when its lease has ended.
func (x *Coordinator) GiveBack(c *Claim, clean bool) {
	x.mu.Lock()
	t := x.tokens
	x.mu.Unlock()
	kind := fmt.Sprint("give back ", c.Partition)
	until := time.Now().Add(x.Lease) // longer waits help nobody: the lease ends if it is not extended
	for rest := leastRest; clean && c.Settles() && !c.lost.Load() && time.Now().Before(until); rest = min(2*rest, time.Second) {
		ctx, cancel := context.WithTimeout(x.live, callTime)
		err := x.Guard("Delay", func() error { return t.giveBack(ctx, c) })
		cancel()
		if err == nil || errors.Is(err, backend.ErrLeaseLost) { // or another member has it
			break
		}
		x.trouble(kind, err)
		if wait.Sleep(x.ctx, rest); x.ctx.Err() != nil { // a drain does not wait for longer
			break
		}
	}
	x.trouble(kind, nil) // otherwise the lease of the token ends
	x.telling.Lock()
	defer x.telling.Unlock()
	c.lost.Store(true)
	if x.forget(c) {
		wake(x.wakeTake)
	}
}

// Drain begins the end: no token is taken any more, the other members learn that the member
// leaves, and all partitions are shed.
func (x *Coordinator) Drain() {
	x.mu.Lock()
	x.drains = true
	x.mu.Unlock()
	x.stop()
	x.shed(0)
}

// Close ends the work. It waits until all claims have ended, or ctx is done. Tokens that are not given
// back are due when their leases have ended.
func (x *Coordinator) Close(ctx context.Context) error {
	x.Drain()
	for len(x.Owned()) > 0 && ctx.Err() == nil {
		select {
		case <-x.emptied:
		case <-ctx.Done():
		}
	}
	x.joined.Wait()
	x.end()
	x.keeping.Wait()
	x.mu.Lock()
	x.expiry.Stop()
	t := x.tokens
	x.mu.Unlock()
	return x.Guard("Close of a Source", t.source.Close)
}

// shed gives back the partitions above a quota.
func (x *Coordinator) shed(quota int) {
	x.telling.Lock()
	defer x.telling.Unlock()
	x.mu.Lock()
	var shed []*Claim
	for _, c := range surplus(x.sorted(), quota) {
		if !c.gives {
			c.gives = true
			shed = append(shed, c)
		}
	}
	x.mu.Unlock()
	for _, c := range shed {
		x.Owner.Shed(c)
	}
}

// trouble tells the Owner that a kind of call has failed, or that all kinds succeed again.
func (x *Coordinator) trouble(kind string, err error) {
	if x.live.Err() != nil {
		return
	}
	x.troublesMu.Lock()
	defer x.troublesMu.Unlock()
	had := len(x.troubles)
	if err != nil {
		x.troubles[kind] = true
		x.Owner.Troubled(err)
		return
	}
	if delete(x.troubles, kind); had > 0 && len(x.troubles) == 0 {
		x.Owner.Troubled(nil)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
