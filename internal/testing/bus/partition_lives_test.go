package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/process"
	"github.com/seed41896749/eventbus/observer"
)

const partitionLease = 4 * time.Second

// A society is a group whose members, each in a process of its own, come, freeze, die and leave.
type society struct {
	*testing.T
	rand       *rand.Rand // of the goroutine of the test
	partitions int
	broker     backend.Backend
	publisher  *eventbus.Bus
	members    []*partitionMember // alive, or frozen
	all        []*partitionMember

	mu      sync.Mutex
	runs    *rand.Rand     // of handlers
	handled map[string]int // by key: how many of its events were handled for the first time
	sent    map[string]int // by key
	epochs  map[int]int    // by partition
	trouble []string
	log     []string
}

type partitionMember struct {
	name string
	*process.Process
	bus *eventbus.Bus
	sub *eventbus.Subscription
}

func (s *society) options() eventbus.Options {
	return eventbus.Options{
		Observer: observer.Observer{Failed: func(observer.Failed) {}},
		Topics:   map[string]eventbus.TopicOptions{"orders": {Partitions: s.partitions}},
	}
}

func (s *society) note(format string, args ...any) {
	s.log = append(s.log, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (s *society) fail(format string, args ...any) {
	s.note(format, args...)
	s.trouble = append(s.trouble, fmt.Sprintf(format, args...))
}

func (s *society) join() {
	m := &partitionMember{name: fmt.Sprintf("m%d", len(s.all)), Process: &process.Process{Backend: s.broker}}
	o := s.options()
	o.Observer.PartitionMoved = func(e observer.PartitionMoved) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note("%s partition %d epoch %d gained %v %v", m.name, e.Partition, e.Epoch, e.Gained, e.Err)
	}
	var err error
	m.bus, err = eventbus.New(m.Process, o)
	require.NoError(s, err)
	m.sub, err = m.bus.Subscribe(context.WithoutCancel(s.Context()), "orders", eventbus.SubscribeOptions{
		Group: "g", Lease: partitionLease, Concurrency: 1 + s.rand.IntN(4), Retry: eventbus.Retry{MaxAttempts: -1, Initial: 300 * time.Millisecond},
	}, func(ctx context.Context, d *eventbus.Delivery) error { return s.handle(ctx, m, d) })
	require.NoError(s, err)
	s.mu.Lock()
	s.note("%s joins", m.name)
	s.mu.Unlock()
	s.members, s.all = append(s.members, m), append(s.all, m)
}

// handle checks the order of the key of an event: all earlier ones must have been handled.
func (s *society) handle(ctx context.Context, m *partitionMember, d *eventbus.Delivery) error {
	n, _ := strconv.Atoi(d.ID)
	alive := m.Wait()
	s.mu.Lock()
	if ctx.Err() == nil && alive {
		if n > s.handled[d.Key] {
			s.fail("%s runs event %d of %s in partition %d, and only %d were handled", m.name, n, d.Key, d.Partition, s.handled[d.Key])
		}
		if d.Epoch < s.epochs[d.Partition] {
			s.fail("%s runs an event of partition %d with epoch %d, after %d", m.name, d.Partition, d.Epoch, s.epochs[d.Partition])
		}
		s.epochs[d.Partition] = max(d.Epoch, s.epochs[d.Partition])
		if want := eventbus.PartitionOf(d.Key, s.partitions); d.Partition != want || d.Topic != "orders" {
			s.fail("event of %s: got topic %s, partition %d, want %d", d.Key, d.Topic, d.Partition, want)
		}
	}
	took, fails := time.Duration(s.runs.IntN(20))*time.Millisecond, s.runs.IntN(20) == 0
	if s.runs.IntN(50) == 0 {
		took = time.Duration(s.runs.IntN(3000)) * time.Millisecond
	}
	s.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	alive = m.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !alive || ctx.Err() != nil:
		return errors.New("too late")
	case fails:
		return errors.New("fails")
	}
	s.handled[d.Key] = max(s.handled[d.Key], n+1)
	return nil
}

// publish publishes an event of a random key. Its ID is its number.
func (s *society) publish() {
	key := fmt.Sprintf("key-%d", s.rand.IntN(3*s.partitions))
	s.mu.Lock()
	n := s.sent[key]
	s.sent[key]++
	s.mu.Unlock()
	require.NoError(s, s.publisher.Publish(s.Context(), "orders", &eventbus.Event{ID: strconv.Itoa(n), Key: key}))
}

// pick removes a random member that is not frozen.
func (s *society) pick() *partitionMember {
	if len(s.members) == 0 {
		return nil
	}
	i := s.rand.IntN(len(s.members))
	m := s.members[i]
	s.members = slices.Delete(s.members, i, i+1)
	return m
}

// change lets one member come, leave, freeze or die.
func (s *society) change() {
	if len(s.members) == 0 || len(s.members) < 5 && s.rand.IntN(3) == 0 {
		s.join()
		return
	}
	m := s.pick()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.rand.IntN(3) {
	case 0:
		s.note("%s dies", m.name)
		m.Die()
	case 1:
		s.note("%s leaves", m.name)
		go func() { _ = m.sub.Drain(context.WithoutCancel(s.Context())) }()
	default:
		d := time.Duration(s.rand.IntN(int(3 * partitionLease)))
		s.note("%s freezes for %v", m.name, d)
		m.Freeze()
		time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.note("%s thaws", m.name)
			m.Thaw()
		})
		s.members = append(s.members, m) // it may freeze again, leave or die
	}
}

// owners checks that no partition has two owners.
func (s *society) owners() (owned []int) {
	by := map[int]string{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.all {
		for _, p := range m.sub.Partitions() {
			if other := by[p]; other != "" {
				s.fail("%s and %s own partition %d", other, m.name, p)
			}
			by[p] = m.name
			owned = append(owned, p)
		}
	}
	return owned
}

func (s *society) live() {
	s.join()
	for range 60 {
		for range s.rand.IntN(6) {
			s.publish()
		}
		if s.rand.IntN(6) == 0 {
			s.change()
		}
		for range 3 {
			time.Sleep(time.Duration(s.rand.IntN(200)) * time.Millisecond)
			s.owners()
		}
	}
	s.mu.Lock()
	s.note("the end begins")
	s.mu.Unlock()
	if len(s.members) == 0 {
		s.join()
	}
	for _, m := range s.all {
		m.Thaw()
	}
	time.Sleep(2*partitionLease + 5*time.Second)
	owned := s.owners()
	slices.Sort(owned)
	for range 60 { // a backlog, and retries, take a while
		if s.isDone() {
			break
		}
		time.Sleep(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(owned) != s.partitions {
		s.fail("at the end %v are owned, of %d partitions", owned, s.partitions)
	}
	for _, m := range s.members {
		if most := (s.partitions + len(s.members) - 1) / len(s.members); len(m.sub.Partitions()) > most {
			s.fail("%s owns %v, more than %d", m.name, m.sub.Partitions(), most)
		}
	}
	for key, n := range s.sent {
		if s.handled[key] != n {
			s.fail("%d of %d events of %s were handled", s.handled[key], n, key)
		}
	}
}

// isDone reports whether all events were handled.
func (s *society) isDone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, n := range s.sent {
		if s.handled[key] != n {
			return false
		}
	}
	return true
}

func (s *society) end() {
	ctx := context.WithoutCancel(s.Context())
	for _, m := range s.all {
		m.Thaw()
		_ = m.bus.Shutdown(ctx)
	}
	require.NoError(s, s.publisher.Shutdown(ctx))
	require.NoError(s, s.broker.Close())
}

// Members join, leave, freeze and die, in random lives. No partition has two owners, none stays
// without one, no event is lost, and the order of each key holds in the whole group.
func TestPartitionLives(t *testing.T) {
	first, lives := 0, 1000
	if raceEnabled || testing.Short() {
		lives = 40
	}
	if n, err := strconv.Atoi(os.Getenv("EVENTBUS_PARTITION_LIVES")); err == nil {
		lives = n
	}
	if n, err := strconv.Atoi(os.Getenv("EVENTBUS_PARTITION_LIFE")); err == nil {
		first, lives = n, 1
	}
	for i := first; i < first+lives; i++ {
		var s *society
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			s = &society{T: t, rand: r, runs: rand.New(rand.NewPCG(uint64(i), 8)), partitions: 1 + r.IntN(8), handled: map[string]int{}, sent: map[string]int{}, epochs: map[int]int{}}
			s.broker = inmemory.New(inmemory.Options{})
			var err error
			s.publisher, err = eventbus.New(&process.Process{Backend: s.broker}, s.options())
			require.NoError(t, err)
			defer s.end()
			s.live()
		})
		if len(s.trouble) > 0 {
			for _, line := range s.log {
				t.Log(line)
			}
			t.Fatalf("life %d: %v", i, s.trouble)
		}
	}
}
