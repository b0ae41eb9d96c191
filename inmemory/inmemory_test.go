package inmemory_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

const lease = 30 * time.Second

func open(t testing.TB, o inmemory.Options) *inmemory.Backend {
	b := inmemory.New(o)
	t.Cleanup(func() { b.Close() })
	return b
}

func attach(t testing.TB, b backend.Backend, group string) backend.Source {
	t.Helper()
	s, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: group, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func publish(t testing.TB, b backend.Backend, ids ...string) {
	t.Helper()
	var ms []*backend.Message
	for _, id := range ids {
		ms = append(ms, &backend.Message{Topic: "orders", ID: id, Payload: []byte(id)})
	}
	if err := b.Publish(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
}

// receive copies the lent deliveries and clears them, as the bus does.
func receive(t testing.TB, s backend.Source, n int) []backend.Delivery {
	t.Helper()
	ds, err := s.Receive(t.Context(), n, 0)
	if err != nil {
		t.Fatal(err)
	}
	own := slices.Clone(ds)
	clear(ds)
	return own
}

func ids(ds []backend.Delivery) (ids []string) {
	for i := range ds {
		ids = append(ids, ds[i].ID)
	}
	return ids
}

// Publish stores the messages of each topic in their order, whatever the order of the topics is. Each message gets its
// own position and error.
func TestTopicsInTurns(t *testing.T) {
	b := open(t, inmemory.Options{MaxBytes: 100})
	one, two := attach(t, b, "one"), attach(t, b, "two")
	batch := []*backend.Message{
		{Topic: "orders", ID: "1", Key: "a", Headers: backend.Headers{{Name: "n", Value: "v1"}}},
		{Topic: "bills", ID: "2"},
		{Topic: "orders", ID: "3", Payload: make([]byte, 101)},
		{Topic: "bills", ID: "4", Payload: make([]byte, 101)},
		{Topic: "orders", ID: "5", Key: "b", Headers: backend.Headers{{Name: "n", Value: "v5"}}},
	}
	err := b.Publish(t.Context(), batch)
	for i, want := range []error{nil, nil, backend.ErrTooLarge, backend.ErrTooLarge, nil} {
		if got := backend.ErrorAt(err, i); !errors.Is(got, want) || (want == nil) != (got == nil) {
			t.Errorf("message %d: got %v, want %v", i+1, got, want)
		}
	}
	for _, s := range []backend.Source{one, two} {
		ds := receive(t, s, 3)
		if got, want := ids(ds), []string{"1", "5"}; !slices.Equal(got, want) {
			t.Fatalf("got the messages %v, want %v", got, want)
		}
		for i, m := range []*backend.Message{batch[0], batch[4]} {
			if d := ds[i]; d.Key != m.Key || d.Headers.Get("n") != m.Headers.Get("n") || d.Position != m.Position {
				t.Errorf("message %s: got %+v, want %+v", m.ID, d.Message, *m)
			}
		}
	}
}

// At a bound only the messages that do not fit are refused. Messages settled by all groups
// free room at once.
func TestBounds(t *testing.T) {
	b := open(t, inmemory.Options{MaxMessages: 3, MaxBytes: 100})
	one, two := attach(t, b, "one"), attach(t, b, "two")
	batch := []*backend.Message{
		{Topic: "orders", ID: "1"},
		{Topic: "orders", ID: "2", Payload: make([]byte, 101)},
		{Topic: "orders", ID: "3"},
		{Topic: "bills", ID: "4"},
		{Topic: "bills", ID: "5"},
	}
	err := b.Publish(t.Context(), batch)
	for i, want := range []error{nil, backend.ErrTooLarge, nil, nil, backend.ErrFull} {
		if got := backend.ErrorAt(err, i); !errors.Is(got, want) || (want == nil) != (got == nil) {
			t.Errorf("message %d: got %v, want %v", i+1, got, want)
		}
		if stored := batch[i].Position != ""; stored != (want == nil) {
			t.Errorf("message %d: position %q after %v", i+1, batch[i].Position, want)
		}
	}
	if got, want := backend.ErrorAt(err, 4).Error(), "inmemory: publish bills: full"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	full := func() bool {
		return errors.Is(b.Publish(t.Context(), []*backend.Message{{Topic: "bills"}}), backend.ErrFull)
	}
	one.Ack(t.Context(), backend.Lend(receive(t, one, 3)))
	if !full() {
		t.Error("there is room although group two has settled nothing")
	}
	two.Ack(t.Context(), backend.Lend(receive(t, two, 1)))
	if full() {
		t.Error("there is no room although the oldest message is settled by all")
	}
}

// wait calls WaitSettled in the background; waits requires that it has not returned.
func wait(t *testing.T, b *inmemory.Backend) (settled chan error, waits func(why string)) {
	settled = make(chan error, 1)
	go func() { settled <- b.WaitSettled(t.Context()) }()
	return settled, func(why string) {
		t.Helper()
		synctest.Wait()
		if len(settled) > 0 {
			t.Fatalf("WaitSettled returned %v while %s", <-settled, why)
		}
	}
}

// WaitSettled returns when the last group settles the last message, and not while a
// message is undelivered, held or delayed.
func TestWaitSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, inmemory.Options{})
		if err := b.WaitSettled(t.Context()); err != nil {
			t.Fatal(err)
		}
		one, two := attach(t, b, "one"), attach(t, b, "two")
		publish(t, b, "1", "2")
		settled, waits := wait(t, b)
		waits("nothing was handed out")
		one.Ack(t.Context(), backend.Lend(receive(t, one, 2)))
		waits("group two has not settled")
		ds := receive(t, two, 2)
		waits("group two holds")
		two.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: time.Hour}})
		two.Ack(t.Context(), backend.Lend(ds[1:]))
		waits("a message is delayed")
		two.Ack(t.Context(), backend.Lend(ds[:1]))
		if err := <-settled; err != nil {
			t.Fatal(err)
		}
	})
}

// WaitSettled does not wait for deleted or skipped messages.
func TestWaitSettledForgets(t *testing.T) {
	for name, forget := range map[string]func(ctx context.Context, b *inmemory.Backend) error{
		"delete group": func(ctx context.Context, b *inmemory.Backend) error { return b.DeleteGroup(ctx, "orders", "one") },
		"delete topic": func(ctx context.Context, b *inmemory.Backend) error { return b.DeleteTopic(ctx, "orders") },
		"reset group": func(ctx context.Context, b *inmemory.Backend) error {
			return b.ResetGroup(ctx, "orders", "one", backend.StartLatest)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, inmemory.Options{})
				one := attach(t, b, "one")
				publish(t, b, "1", "2", "3")
				receive(t, one, 2)
				settled, waits := wait(t, b)
				waits("there are messages")
				if err := forget(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				if err := <-settled; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestWaitSettledEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, inmemory.Options{})
		attach(t, b, "billing")
		publish(t, b, "1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.WaitSettled(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v after its context was done", err)
		}
		time.AfterFunc(time.Second, func() { b.Close() })
		if err := b.WaitSettled(t.Context()); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("got %v after Close", err)
		}
	})
}

// Each message wakes one waiting member. An abandoned delivery wakes another member when
// it is due.
func TestWaitersPassOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, inmemory.Options{})
		got := make(chan []string, 10)
		for range 3 {
			src := attach(t, b, "billing")
			go func() {
				ds, _ := src.Receive(t.Context(), 1, 0)
				got <- ids(ds)
			}()
		}
		synctest.Wait()
		publish(t, b, "1", "2")
		both := slices.Sorted(slices.Values(append(<-got, <-got...))) // either member may be first
		if !slices.Equal(both, []string{"1", "2"}) {
			t.Errorf("two members got %v, want 1 and 2", both)
		}
		start := time.Now()
		if third := <-got; !slices.Equal(third, []string{"1"}) || time.Since(start) != lease {
			t.Errorf("got %v after %v, want 1 after %v", third, time.Since(start), lease)
		}
	})
}

// A receiver cannot change the memory of neighbouring messages.
func TestReceivedMemoryIsApart(t *testing.T) {
	b := open(t, inmemory.Options{})
	src := attach(t, b, "billing")
	h := func(v string) backend.Headers { return backend.Headers{{Name: "n", Value: v}} }
	err := b.Publish(t.Context(), []*backend.Message{
		{Topic: "orders", ID: "1", Payload: []byte("one"), Headers: h("one")},
		{Topic: "orders", ID: "2", Payload: []byte("two"), Headers: h("two")},
	})
	if err != nil {
		t.Fatal(err)
	}
	ds := receive(t, src, 2)
	_ = append(ds[0].Payload, "xxx"...)
	_ = append(ds[0].Headers, backend.Header{Name: "x", Value: "x"})
	if string(ds[1].Payload) != "two" || ds[1].Headers.Get("n") != "two" {
		t.Errorf("appending to the first delivery changed the second: %q %v", ds[1].Payload, ds[1].Headers)
	}
}

// The longest possible delay does not overflow into the past.
func TestEndlessDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, inmemory.Options{})
		src := attach(t, b, "billing")
		publish(t, b, "1")
		time.Sleep(time.Second)
		err := src.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: receive(t, src, 1)[0], For: math.MaxInt64}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		if ds, err := src.Receive(ctx, 1, 0); len(ds) > 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %d deliveries and %v, want none", len(ds), err)
		}
	})
}

// An ID is remembered for its window, and again after it is published once more.
func TestOnceForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, inmemory.Options{OnceWindow: time.Minute})
		attach(t, b, "billing")
		once := func(id string) (duplicate bool) {
			m := &backend.Message{Topic: "orders", ID: id, Once: true}
			if err := b.Publish(t.Context(), []*backend.Message{m}); err != nil {
				t.Fatal(err)
			}
			return m.Duplicate
		}
		for i := range 3000 {
			once(fmt.Sprint(i))
		}
		time.Sleep(30 * time.Second)
		if !once("2999") {
			t.Error("2999 is not a duplicate within its window")
		}
		if next, err := b.Maintain(t.Context(), "orders", "billing"); err != nil || next != 30*time.Second {
			t.Errorf("got %v, %v, want 30s", next, err)
		}
		time.Sleep(30 * time.Second)
		if once("2999") {
			t.Error("2999 is a duplicate after its window")
		}
		if !once("2999") {
			t.Error("2999 is not a duplicate within its second window")
		}
	})
}

// A reset group refuses receipts from before the reset.
func TestResetVoidsReceipts(t *testing.T) {
	b := open(t, inmemory.Options{})
	src := attach(t, b, "billing")
	publish(t, b, "1", "2")
	before := receive(t, src, 2)
	if err := b.ResetGroup(t.Context(), "orders", "billing", backend.StartEarliest); err != nil {
		t.Fatal(err)
	}
	settle := func(when string, ds []backend.Delivery) {
		if err := src.Ack(t.Context(), backend.Lend(ds)); err != nil {
			t.Fatal(err)
		}
		if err := src.(backend.Extender).Extend(t.Context(), backend.Lend(ds[:1])); !errors.Is(err, backend.ErrLeaseLost) {
			t.Errorf("%s: Extend: got %v, want %v", when, err, backend.ErrLeaseLost)
		}
	}
	settle("before they were handed out again", before)
	again := receive(t, src, 2)
	if got, want := ids(again), []string{"1", "2"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	settle("after they were handed out again", before)
	if s, err := b.Stats(t.Context(), "orders", "billing"); err != nil || s.InFlight != 2 {
		t.Errorf("got %d in flight and %v, want 2", s.InFlight, err)
	}
	settle("of this time", again)
}

// Messages published while their topic is deleted are stored in an existing topic, or
// deleted with it. They never take up room permanently.
func TestPublishWhileDeleting(t *testing.T) {
	const publishers, calls, batch = 8, 200, 100 // a batch holds the lock long enough for other calls to wait
	const bound = publishers * calls * batch
	b := open(t, inmemory.Options{MaxMessages: bound})
	fill := func(n int) error {
		ms := make([]*backend.Message, n)
		for i := range ms {
			ms[i] = &backend.Message{Topic: "orders"}
		}
		return b.Publish(t.Context(), ms)
	}
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			for range calls {
				if err := fill(batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	published := make(chan struct{})
	go func() { wg.Wait(); close(published) }()
	for done := false; !done; {
		select {
		case <-published:
			done = true
		default:
		}
		if err := b.DeleteTopic(t.Context(), "orders"); err != nil && !errors.Is(err, backend.ErrGone) {
			t.Fatal(err)
		}
	}
	if err := fill(bound); err != nil {
		t.Errorf("nothing is stored, and yet: %v", err)
	}
}

// Received content equals published content, for messages of any size that share memory,
// whether or not the memory was used before.
func TestContentIsKept(t *testing.T) {
	b := open(t, inmemory.Options{})
	src := attach(t, b, "billing")
	random := rand.New(rand.NewPCG(1, 2))
	text := func(most int) string { return strings.Repeat(string('a'+byte(random.IntN(26))), random.IntN(most)) }
	content := func(m *backend.Message) string {
		return fmt.Sprint(m.Topic, m.ID, "/", m.Key, m.Headers, m.Position, string(m.Payload))
	}
	for range 30 {
		var published []*backend.Message
		for range 1 + random.IntN(200) {
			m := &backend.Message{Topic: "orders", ID: text(50), Key: text(3), Payload: []byte(text(3000))}
			if random.IntN(20) == 0 {
				m.Payload = []byte(strings.Repeat("x", 4000+random.IntN(2000)))
			}
			for i := range random.IntN(4) {
				m.Headers = append(m.Headers, backend.Header{Name: fmt.Sprint("name", i), Value: text(20)})
			}
			published = append(published, m)
		}
		if err := b.Publish(t.Context(), published); err != nil {
			t.Fatal(err)
		}
		for len(published) > 0 {
			ds := receive(t, src, 1+random.IntN(len(published)))
			for i := range ds {
				if got, want := content(&ds[i].Message), content(published[i]); got != want {
					t.Fatalf("got %s\nwant %s", got, want)
				}
				for j := range ds[i].Payload {
					ds[i].Payload[j] = '!'
				}
			}
			published = published[len(ds):]
			if err := src.Ack(t.Context(), backend.Lend(ds)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Maintain(t.Context(), "orders", "billing"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
