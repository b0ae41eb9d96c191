package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A rig is an engine on the in-memory backend, in a synctest bubble. It counts the calls to the
// backend and can make them fail.
type rig struct {
	*testing.T
	*Engine
	wire  *wire
	start time.Time

	mu   sync.Mutex
	told []any
}

// inBubble runs f on a new rig and then shuts it down.
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
		defer func() {
			_, err := r.Shutdown(context.WithoutCancel(t.Context()))
			assert.NoError(t, err)
		}()
		f(r)
	})
}

func (r *rig) tell(e any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, e)
}

// heard returns the arguments of type E that the observer's hooks have received.
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

// policy returns a Policy that allows maxAttempts and waits for backoff before each retry.
func policy(maxAttempts int, backoff func(*Hold, error) time.Duration) Policy {
	return Policy{MaxAttempts: maxAttempts, Plan: func(h *Hold, err error, plan *Plan) {
		plan.MaxAttempts, plan.After = maxAttempts, backoff(h, err)
	}}
}

// sub subscribes, filling in the fields that c leaves out.
func (r *rig) sub(c Config, h func(ctx context.Context, h *Run) error) *Subscription {
	r.Helper()
	c.Topic, c.Group = "t", "g"
	c.Concurrency = max(c.Concurrency, 1)
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 1024
	}
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.Policy.Plan == nil {
		c.Policy = policy(3, func(*Hold, error) time.Duration { return time.Second })
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

// keepTopic makes the topic keep its events, by adding a group that settles none.
func (r *rig) keepTopic() {
	r.Helper()
	src, err := r.wire.Backend.Attach(r.Context(), backend.Config{Topic: "t", Group: "keeper", Lease: time.Hour})
	require.NoError(r, err)
	require.NoError(r, src.Close())
}

// pass sleeps for d and waits until every goroutine is blocked.
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
	failing  map[string]error         // by verb; nil if it doesn't fail
	slow     map[string]time.Duration // how long a call takes to reach the broker
	late     map[string]time.Duration // how long its answer takes
	noDelay  bool                     // its sources can't Delay
	noExtend bool                     // its sources can neither Delay nor Extend
	noRefund bool                     // a delivery counts as an attempt even without a run; a test then sets rig.limits to wire.Limits()
	longest  time.Duration            // its Limits.Delay; 0 for no limit
	deaf     atomic.Bool              // Extend returns nil and does nothing
	mute     atomic.Int64             // how many calls take effect but lose their answers
	empty    atomic.Bool              // Receive returns nothing, at once
	kept     atomic.Int64             // deliveries that were lent and not cleared
	hang     atomic.Bool              // acknowledgements wait for their context
	refused  map[string]error         // errors of Publish, by topic
	refuse   string                   // the ID of an event that cannot be acknowledged
	panicky  string                   // the verb that panics
	once     atomic.Bool              // the last message was stored with Once
	handOut  func(member int, d *backend.Delivery)
	members  atomic.Int64
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
	l.Refund, l.Delay = l.Refund && !w.noRefund, w.longest
	return l
}

// cross records a call and returns its error.
func (w *wire) cross(verb string, items int) error {
	w.mu.Lock()
	w.calls = append(w.calls, crossing{verb, items, time.Now()})
	err, wait, panics := w.failing[verb], w.slow[verb], w.panicky == verb
	w.mu.Unlock()
	if panics {
		panic("a bug of the driver")
	}
	time.Sleep(wait)
	return err
}

// answer delays the answer to a call, or loses it.
func (w *wire) answer(verb string, err error) error {
	w.mu.Lock()
	wait := w.late[verb]
	w.mu.Unlock()
	time.Sleep(wait)
	if w.mute.Load() > 0 && w.mute.Add(-1) >= 0 {
		return backend.ErrUnknownOutcome
	}
	return err
}

// fail makes calls of a verb fail with err from now on, or succeed if err is nil.
func (w *wire) fail(verb string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing == nil {
		w.failing = map[string]error{}
	}
	w.failing[verb] = err
}

// delay makes calls of a verb take d to reach the broker.
func (w *wire) delay(verb string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slow == nil {
		w.slow = map[string]time.Duration{}
	}
	w.slow[verb] = d
}

// panics sets whether calls of a verb panic.
func (w *wire) panics(verb string, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.panicky = verb; !yes {
		w.panicky = ""
	}
}

// refuseTopic makes Publish to a topic fail with err. An empty topic ends that.
func (w *wire) refuseTopic(topic string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = map[string]error{topic: err}
}

// refuses makes acknowledgements of the event with this ID fail. An empty ID ends that.
func (w *wire) refuses(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = id
}

// answerAfter makes answers to a verb take d.
func (w *wire) answerAfter(verb string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late == nil {
		w.late = map[string]time.Duration{}
	}
	w.late[verb] = d
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
	w.mu.Lock()
	err := w.refused[msgs[0].Topic]
	w.mu.Unlock()
	if err != nil {
		return err
	}
	w.once.Store(msgs[0].Once)
	return w.Backend.Publish(ctx, msgs)
}

func (w *wire) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	if err := w.cross("attach", 1); err != nil {
		return nil, err
	}
	src, err := w.Backend.Attach(ctx, c)
	if w.noExtend {
		return withoutVerbs{&wireSource{Source: src, w: w}}, err
	}
	if w.noDelay {
		return withoutDelay{&wireSource{Source: src, w: w}}, err
	}
	return &wireSource{Source: src, w: w, member: int(w.members.Add(1))}, err
}

// withoutVerbs is a Source that can neither Delay nor Extend.
type withoutVerbs struct{ source *wireSource }

func (s withoutVerbs) Receive(ctx context.Context, n int, maxBytes int64) ([]backend.Delivery, error) {
	return s.source.Receive(ctx, n, maxBytes)
}

func (s withoutVerbs) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.source.Ack(ctx, ds)
}
func (s withoutVerbs) Close() error { return s.source.Close() }

// withoutDelay is a Source that can Extend but not Delay.
type withoutDelay struct{ source *wireSource }

func (s withoutDelay) Receive(ctx context.Context, n int, maxBytes int64) ([]backend.Delivery, error) {
	return s.source.Receive(ctx, n, maxBytes)
}

func (s withoutDelay) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.source.Ack(ctx, ds)
}

func (s withoutDelay) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return s.source.Extend(ctx, ds)
}
func (s withoutDelay) Close() error { return s.source.Close() }

// A wireSource lends its deliveries until the next Receive and then overwrites them, so that using
// them later makes the test fail.
type wireSource struct {
	backend.Source
	w      *wire
	member int
	lent   []backend.Delivery
}

func (s *wireSource) Unwrap() backend.Source { return s.Source }

func (s *wireSource) Receive(ctx context.Context, n int, maxBytes int64) ([]backend.Delivery, error) {
	for i := range s.lent {
		if s.lent[i].Position != "" {
			s.w.kept.Add(1)
		}
		s.lent[i] = backend.Delivery{Message: backend.Message{ID: "void", Position: "void"}, Attempt: 99}
	}
	if err := s.w.cross("receive", n); err != nil || s.w.empty.Load() {
		return nil, err
	}
	ds, err := s.Source.Receive(ctx, n, maxBytes)
	s.lent = append(s.lent[:0], ds...)
	s.handOut(0) // nobody's, while the answer is on its way
	err = s.w.answer("receive", err)
	if errors.Is(err, backend.ErrUnknownOutcome) {
		s.lent = s.lent[:0]
	}
	s.handOut(s.member)
	return s.lent, err
}

func (s *wireSource) handOut(member int) {
	if s.w.handOut != nil {
		for i := range s.lent {
			s.w.handOut(member, &s.lent[i])
		}
	}
}

func (s *wireSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if err := s.w.cross("ack", len(ds)); err != nil {
		return err
	}
	if s.w.hang.Load() {
		<-ctx.Done()
		return backend.ErrUnknownOutcome
	}
	s.w.mu.Lock()
	refuse := s.w.refuse
	s.w.mu.Unlock()
	for i, d := range ds {
		if d.ID == refuse && d.ID != "" {
			errs := make(backend.BatchError, len(ds))
			errs[i] = errDown
			return errs
		}
	}
	return s.w.answer("ack", s.Source.Ack(ctx, ds))
}

func (s *wireSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	if err := s.w.cross("extend", len(ds)); err != nil {
		return err
	}
	if s.w.deaf.Load() {
		return nil
	}
	v, _ := backend.As[backend.Extender](s.Source)
	return s.w.answer("extend", v.Extend(ctx, ds))
}

func (s *wireSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	if err := s.w.cross("delay", len(ds)); err != nil {
		return err
	}
	v, _ := backend.As[backend.Delayer](s.Source)
	ds = slices.Clone(ds) // the engine's own
	for i := range ds {
		if s.w.longest > 0 && ds[i].For > s.w.longest {
			return backend.ErrRefused
		}
		ds[i].Refund = ds[i].Refund && !s.w.noRefund
	}
	return s.w.answer("delay", v.Delay(ctx, ds))
}

var errDown = errors.New("down")
