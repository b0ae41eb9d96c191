package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/observer"
)

// A division is a topic whose number of partitions changes, and the events of its keys.
type division struct {
	*testing.T
	b *inmemory.Backend

	mu      sync.Mutex
	sent    map[string]int // by key: numbers of events that were published
	handled map[string]int
	wrong   []string
}

const divisionKeys = 20

// bus returns a bus of a program that states n partitions, on the shared broker.
func (d *division) bus(n int) *eventbus.Bus {
	bus, err := eventbus.New(shared{d.b}, eventbus.Options{
		Observer: observer.Observer{Failed: func(observer.Failed) {}},
		Topics:   map[string]eventbus.TopicOptions{"orders": {Partitions: n}},
	})
	require.NoError(d, err)
	return bus
}

// shared is a backend that several buses use.
type shared struct{ backend.Backend }

func (s shared) Unwrap() backend.Backend { return s.Backend }
func (s shared) Close() error            { return nil }

// publish publishes the next event of a key.
func (d *division) publish(bus *eventbus.Bus, key int) error {
	name := fmt.Sprint("key-", key)
	d.mu.Lock()
	n := d.sent[name]
	d.mu.Unlock()
	err := bus.Publish(d.Context(), "orders", &eventbus.Event{ID: strconv.Itoa(n), Key: name})
	if err == nil {
		d.mu.Lock()
		d.sent[name]++
		d.mu.Unlock()
	}
	return err
}

func (d *division) subscribe(bus *eventbus.Bus, group string) *eventbus.Subscription {
	s, err := bus.Subscribe(context.WithoutCancel(d.Context()), "orders", eventbus.SubscribeOptions{Group: group, Lease: 6 * time.Second, Concurrency: 4},
		func(_ context.Context, e *eventbus.Delivery) error {
			n, _ := strconv.Atoi(e.ID)
			d.mu.Lock()
			defer d.mu.Unlock()
			if n > d.handled[e.Key] {
				d.wrong = append(d.wrong, fmt.Sprintf("event %d of %s before %d", n, e.Key, d.handled[e.Key]))
			}
			d.handled[e.Key] = max(d.handled[e.Key], n+1)
			return nil
		})
	require.NoError(d, err)
	return s
}

func (d *division) end(bus *eventbus.Bus) {
	require.NoError(d, bus.Shutdown(context.WithoutCancel(d.Context())))
}

func (d *division) change(n int) error {
	_, err := (&partition.Change{Backend: d.b, Topic: "orders", Number: n, By: "ann", Confirm: func(partition.Loss) error { return errors.New("no loss") }}).Run(d.Context())
	return err
}

func inDivision(t *testing.T, test func(d *division)) {
	synctest.Test(t, func(t *testing.T) {
		test(&division{T: t, b: inmemory.New(inmemory.Options{}), sent: map[string]int{}, handled: map[string]int{}})
	})
}

// A publisher with the old number publishes all the time while the number changes, up and down. Its
// events count or it gets an error: none is lost, and the order of each key holds over the change.
func TestPublishersWithTheOldNumber(t *testing.T) {
	for _, row := range []struct {
		from, to int
		pause    time.Duration // after the last event, before the command begins
	}{{4, 16, 0}, {16, 4, 0}, {4, 16, 4 * time.Second}, {16, 4, 4900 * time.Millisecond}, {16, 4, time.Minute}} {
		t.Run(fmt.Sprintf("%d to %d after %v", row.from, row.to, row.pause), func(t *testing.T) {
			inDivision(t, func(d *division) {
				old, member := d.bus(row.from), d.bus(row.from)
				d.subscribe(member, "g")
				for i := range 3 * divisionKeys {
					require.NoError(d, d.publish(old, i%divisionKeys))
				}
				time.Sleep(10 * time.Second)
				d.end(member)
				require.Equal(d, d.sent, d.handled)

				require.NoError(d, old.Publish(d.Context(), "other", &eventbus.Event{}))
				time.Sleep(row.pause)
				stop := make(chan struct{})
				var publisher sync.WaitGroup
				refused := 0
				publisher.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						case <-time.After(5500 * time.Millisecond):
						}
						if err := d.publish(old, i%divisionKeys); err != nil {
							number, ok := errors.AsType[*eventbus.PartitionsError](err)
							if !ok || number.Stored != row.to || number.Stated != row.from {
								d.Errorf("got %v", err)
							}
							refused++
						}
					}
				})
				var busy *partition.BusyError
				err := d.change(row.to)
				for range 3 { // if the publisher was faster than the mark
					if !errors.As(err, &busy) {
						break
					}
					again := d.bus(row.from)
					d.subscribe(again, "g")
					time.Sleep(5 * time.Second)
					d.end(again)
					err = d.change(row.to)
				}
				require.NoError(d, err)
				fresh := d.bus(row.to)
				for i := range 3 * divisionKeys {
					require.NoError(d, d.publish(fresh, i%divisionKeys))
				}
				late := d.bus(row.to)
				d.subscribe(late, "g")
				time.Sleep(20 * time.Second)
				close(stop)
				publisher.Wait()
				d.end(late)
				d.end(fresh)
				d.end(old)
				require.Positive(d, refused)
				require.Empty(d, d.wrong)
				require.Equal(d, d.sent, d.handled)
			})
		})
	}
}

// A publisher believes the number that it has read for five seconds. The command waits for longer, and
// then finds the event that came after its mark.
func TestThePledgeOfAPublisher(t *testing.T) {
	inDivision(t, func(d *division) {
		bus := d.bus(4)
		s := d.subscribe(bus, "g")
		time.Sleep(10 * time.Second)
		require.NoError(d, d.publish(bus, 1)) // it reads the number
		time.Sleep(200 * time.Millisecond)
		require.NoError(d, s.Drain(d.Context()))
		result := make(chan error)
		go func() { result <- d.change(16) }()
		time.Sleep(4500 * time.Millisecond)
		require.NoError(d, d.publish(bus, 1))
		var busy *partition.BusyError
		require.ErrorAs(d, <-result, &busy)
		require.EqualValues(d, 1, busy.Events)
		require.NoError(d, d.publish(bus, 1), "the topic is open again")
		d.subscribe(bus, "g")
		time.Sleep(10 * time.Second)
		d.end(bus)
		require.Equal(d, d.sent, d.handled)
		require.Empty(d, d.wrong)
	})
}

// A subscription with the old number that starts while the number changes waits, and then fails with
// both numbers. An instance that reads all partitions fails within ten seconds.
func TestSubscriptionsLearnOfAChange(t *testing.T) {
	inDivision(t, func(d *division) {
		old := d.bus(4)
		instance := d.subscribe(old, eventbus.EachInstance)
		require.NoError(d, d.publish(old, 1))
		time.Sleep(10 * time.Second)
		require.NoError(d, d.change(8))
		time.Sleep(10 * time.Second)
		state, err := instance.State()
		require.Equal(d, observer.Closed, state)
		number, ok := errors.AsType[*eventbus.PartitionsError](err)
		require.True(d, ok)
		require.Equal(d, []int{8, 4}, []int{number.Stored, number.Stated})
		_, err = old.Subscribe(d.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error { return nil })
		require.ErrorAs(d, err, &number)
		err = d.publish(old, 1)
		require.ErrorAs(d, err, &number)
		require.ErrorContains(d, err, "orders has 8 partitions, and this program states 4: state 8, or change the topic by eventbus topics set")
		d.end(old)
	})
}

// Publish waits while a command changes the number, and continues if the command gives up.
func TestPublishWaitsForAChange(t *testing.T) {
	inDivision(t, func(d *division) {
		bus := d.bus(4)
		require.NoError(d, d.publish(bus, 1))
		time.Sleep(time.Minute)
		mark := &backend.Message{Topic: partition.NumberTopic("orders"), Payload: []byte(`{"change":"a","from":4,"to":8,"by":"ann"}`)}
		require.NoError(d, d.b.Publish(d.Context(), []*backend.Message{mark}))
		began := time.Now()
		time.AfterFunc(7*time.Second, func() { _ = d.b.Remove(d.Context(), mark.Topic, []string{mark.Position}) })
		require.NoError(d, d.publish(bus, 1))
		require.InDelta(d, 8, time.Since(began).Seconds(), 1.1)
		d.end(bus)
	})
}

// A Publish that the broker holds back until the number has changed says so, because no group may
// read its partition.
func TestAPublishThatIsLate(t *testing.T) {
	inDivision(t, func(d *division) {
		member := d.bus(4)
		d.subscribe(member, "g")
		time.Sleep(5 * time.Second)
		d.end(member)
		slow := &slowPublish{Backend: d.b}
		bus, err := eventbus.New(slow, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 4}}})
		require.NoError(d, err)
		result := make(chan error)
		go func() { result <- d.publish(bus, 1) }()
		synctest.Wait() // the broker has the event now, and stores it later
		require.NoError(d, d.change(8))
		err = <-result
		require.ErrorIs(d, err, eventbus.ErrUnknownOutcome)
		number, ok := errors.AsType[*eventbus.PartitionsError](err)
		require.True(d, ok)
		require.Equal(d, []int{8, 4}, []int{number.Stored, number.Stated})
		d.end(bus)
	})
}

// A slowPublish takes 20 seconds to store an event in a partition.
type slowPublish struct{ backend.Backend }

func (s *slowPublish) Unwrap() backend.Backend { return s.Backend }

func (s *slowPublish) Publish(ctx context.Context, ms []*backend.Message) error {
	if _, _, ok := partition.Cut(ms[0].Topic); ok {
		time.Sleep(20 * time.Second)
	}
	return s.Backend.Publish(ctx, ms)
}
