package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A rig is an engine on a real backend in memory whose calls are counted and can
// be made to fail, in a synctest bubble.
type rig struct {
	*testing.T
	*Engine
	wire  *wire
	start time.Time

	mu   sync.Mutex
	told []any
}

// inBubble runs f on a fresh rig and ends it.
func inBubble(t *testing.T, o Options, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, start: time.Now(), wire: &wire{Backend: inmemory.New(inmemory.Options{})}}
		o.Observer = observer.Join(o.Observer, observer.Observer{
			Stuck:        func(e observer.Stuck) { r.tell(e) },
			LeaseLost:    func(e observer.LeaseLost) { r.tell(e) },
			Failed:       func(e observer.Failed) { r.tell(e) },
			StateChanged: func(e observer.StateChanged) { r.tell(e) },
			Maintained:   func(e observer.Maintained) { r.tell(e) },
		})
		r.Engine = New(r.wire, o)
		f(r)
		_, err := r.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

func (r *rig) tell(e any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, e)
}

// heard lists the events of one type that were told.
func heard[E any](r *rig) (es []E) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.told {
		if e, ok := t.(E); ok {
			es = append(es, e)
		}
	}
	return es
}

// sub subscribes with what c leaves out filled in.
func (r *rig) sub(c Config, h func(ctx context.Context, h *Hold) error) *Subscription {
	r.Helper()
	c.Topic, c.Group = "t", "g"
	c.Concurrency = max(c.Concurrency, 1)
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 1024
	}
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.Policy.Backoff == nil {
		c.Policy = Policy{MaxAttempts: 3, Backoff: func(int) time.Duration { return time.Second }}
	}
	if c.Limiter == nil {
		c.Limiter = limiter.MaxInFlight(c.MaxInFlight)
	}
	c.Handle = h
	s, err := r.Subscribe(r.Context(), c)
	require.NoError(r, err)
	return s
}

// publish stores messages with these IDs.
func (r *rig) publish(ids ...string) {
	r.Helper()
	var msgs []*backend.Message
	for _, id := range ids {
		msgs = append(msgs, &backend.Message{Topic: "t", ID: id})
	}
	require.NoError(r, r.Publish(r.Context(), msgs))
}

// publishKeyed stores messages with these IDs and one key.
func (r *rig) publishKeyed(key string, ids ...string) {
	r.Helper()
	var msgs []*backend.Message
	for _, id := range ids {
		msgs = append(msgs, &backend.Message{Topic: "t", ID: id, Key: key})
	}
	require.NoError(r, r.Publish(r.Context(), msgs))
}

// steal lets another member receive what is due, n of it, and give it back with a
// refund, to be due after so long; less than zero: it dies.
func (r *rig) steal(n int, after time.Duration) {
	r.Helper()
	other, err := r.wire.Backend.Attach(r.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Millisecond})
	require.NoError(r, err)
	ds, err := other.Receive(r.Context(), n)
	require.NoError(r, err)
	require.Len(r, ds, n)
	delayer, _ := backend.As[backend.Delayer](other)
	for i := 0; i < n && after >= 0; i++ {
		require.NoError(r, delayer.Delay(r.Context(), []backend.Delayed{{Delivery: ds[i], For: after, Refund: true}}))
	}
	require.NoError(r, other.Close())
}

// A record is what handlers ran, in order.
type record struct {
	mu  sync.Mutex
	ids []string
}

// add notes a run, and returns how many there were with it.
func (r *record) add(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, id)
	return len(r.ids)
}

func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}

// pass lets time pass, and everything settle that it brings.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// at is the time since the start.
func (r *rig) at() time.Duration { return time.Since(r.start) }

// A wire is a backend that counts its calls and fails them on demand.
type wire struct {
	backend.Backend

	mu       sync.Mutex
	calls    []crossing
	failing  map[string]error // by verb; nil: no failure
	slow     map[string]time.Duration
	noDelay  bool         // what it attaches cannot Delay
	noRefund bool         // its attempts count although nothing was tried
	sorts    bool         // what is overdue goes by position
	deaf     atomic.Bool  // Extend says that it did, and does nothing
	amnesia  atomic.Bool  // every attempt is the first
	curt     atomic.Int64 // Receive brings less than so many, when it is ended; 0: as ever
	garbled  atomic.Bool  // what comes cannot be read
	late     atomic.Int64 // so much later Delay answers than it is done
	twice    atomic.Int64 // the next Receive that brings something goes on after so long
	empty    atomic.Bool  // Receive brings nothing, at once
	kept     atomic.Int64 // deliveries that were lent and not cleared
}

// A crossing is one call.
type crossing struct {
	verb  string
	items int
	at    time.Time
}

func (w *wire) Unwrap() backend.Backend { return w.Backend }

func (w *wire) Limits() backend.Limits {
	l := backend.LimitsOf(w.Backend)
	l.Refund = l.Refund && !w.noRefund
	return l
}

// cross notes a call and says whether it fails.
func (w *wire) cross(verb string, items int) error {
	w.mu.Lock()
	w.calls = append(w.calls, crossing{verb, items, time.Now()})
	err, wait := w.failing[verb], w.slow[verb]
	w.mu.Unlock()
	time.Sleep(wait)
	return err
}

// fail lets calls of a verb fail from now on; nil: no more.
func (w *wire) fail(verb string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing == nil {
		w.failing = map[string]error{}
	}
	w.failing[verb] = err
}

func (w *wire) delay(verb string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slow == nil {
		w.slow = map[string]time.Duration{}
	}
	w.slow[verb] = d
}

// of lists the calls of a verb.
func (w *wire) of(verb string) []crossing {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.calls), func(c crossing) bool { return c.verb != verb })
}

func (w *wire) Publish(ctx context.Context, msgs []*backend.Message) error {
	if err := w.cross("publish", len(msgs)); err != nil {
		return err
	}
	return w.Backend.Publish(ctx, msgs)
}

func (w *wire) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	if err := w.cross("attach", 1); err != nil {
		return nil, err
	}
	src, err := w.Backend.Attach(ctx, c)
	if w.noDelay {
		return withoutDelay{&wireSource{Source: src, w: w}}, err
	}
	return &wireSource{Source: src, w: w}, err
}

// withoutDelay is a Source that can Extend but not Delay.
type withoutDelay struct{ source *wireSource }

func (s withoutDelay) Receive(ctx context.Context, n int) ([]backend.Delivery, error) {
	return s.source.Receive(ctx, n)
}

func (s withoutDelay) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.source.Ack(ctx, ds)
}

func (s withoutDelay) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return s.source.Extend(ctx, ds)
}
func (s withoutDelay) Close() error { return s.source.Close() }

// A wireSource lends what it brings until the next Receive, as it may: what is
// looked at later is nonsense.
type wireSource struct {
	backend.Source
	w    *wire
	lent []backend.Delivery

	sorted []backend.Delivery // and not handed out yet
}

func (s *wireSource) Unwrap() backend.Source { return s.Source }

func (s *wireSource) Receive(ctx context.Context, n int) ([]backend.Delivery, error) {
	for i := range s.lent {
		if s.lent[i].Position != "" {
			s.w.kept.Add(1)
		}
		s.lent[i] = backend.Delivery{Message: backend.Message{ID: "void", Position: "void"}, Attempt: 99}
	}
	if err := s.w.cross("receive", n); err != nil || s.w.empty.Load() {
		return nil, err
	}
	if curt := s.w.curt.Load(); curt > 0 {
		<-ctx.Done()
		n, ctx = int(curt)-1, context.WithoutCancel(ctx)
	}
	ds, err := s.due(ctx, n)
	if wait := time.Duration(s.w.twice.Load()); wait > 0 && len(ds) > 0 {
		s.w.twice.Store(0)
		ds = slices.Clone(ds)
		time.Sleep(wait)
		more, _ := s.due(ctx, n-len(ds))
		ds = append(ds, more...)
	}
	s.lent = append(s.lent[:0], ds...)
	if s.w.amnesia.Load() {
		for i := range s.lent {
			s.lent[i].Attempt, s.lent[i].Again = 1, false
		}
	}
	if s.w.garbled.Load() {
		for i := range s.lent {
			s.lent[i].Key, s.lent[i].Err = "", errGarbled
		}
	}
	return s.lent, err
}

// due is Receive; where the wire sorts, what is due goes by its position.
func (s *wireSource) due(ctx context.Context, n int) ([]backend.Delivery, error) {
	if !s.w.sorts {
		return s.Source.Receive(ctx, n)
	}
	if len(s.sorted) == 0 {
		ds, err := s.Source.Receive(ctx, 100)
		if err != nil {
			return ds, err
		}
		s.sorted = slices.Clone(ds)
		slices.SortFunc(s.sorted, func(a, b backend.Delivery) int { return strings.Compare(a.Position, b.Position) })
	}
	ds := s.sorted[:min(n, len(s.sorted))]
	s.sorted = s.sorted[len(ds):]
	return ds, nil
}

func (s *wireSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if err := s.w.cross("ack", len(ds)); err != nil {
		return err
	}
	return s.Source.Ack(ctx, ds)
}

func (s *wireSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	if err := s.w.cross("extend", len(ds)); err != nil {
		return err
	}
	if s.w.deaf.Load() {
		return nil
	}
	v, _ := backend.As[backend.Extender](s.Source)
	return v.Extend(ctx, ds)
}

func (s *wireSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	if err := s.w.cross("delay", len(ds)); err != nil {
		return err
	}
	v, _ := backend.As[backend.Delayer](s.Source)
	for i := range ds {
		ds[i].Refund = ds[i].Refund && !s.w.noRefund
	}
	defer func() { time.Sleep(time.Duration(s.w.late.Load())) }()
	return v.Delay(ctx, ds)
}

var (
	errDown    = errors.New("down")
	errGarbled = errors.New("garbled")
)
