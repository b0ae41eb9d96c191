package checkup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/partition"
)

var usual = Options{For: 3 * time.Second, Late: 5 * time.Minute, Old: 24 * time.Hour, Letters: 100}

// inBubble runs a test on a backend in memory, whose time passes at once.
func inBubble(t *testing.T, test func(t *testing.T, b *inmemory.Backend)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		test(t, b)
		require.NoError(t, b.Close())
		time.Sleep(2 * time.Minute) // the goroutine of the sampler ends
	})
}

// codes runs a check, and returns the findings by code.
func codes(t *testing.T, b backend.Backend, o Options) map[string]backend.Finding {
	t.Helper()
	r, err := Run(t.Context(), b, o)
	require.NoError(t, err)
	found := map[string]backend.Finding{}
	for _, f := range r.Findings {
		found[f.Code] = f
	}
	return found
}

func publish(t *testing.T, b backend.Backend, topic, payload string) {
	t.Helper()
	require.NoError(t, backend.ErrorAt(b.Publish(t.Context(), []*backend.Message{{Topic: topic, Payload: []byte(payload)}}), 0))
}

// A group with a handler that hangs is stuck, which shows after a minute; before, it is late.
func TestStuck(t *testing.T) {
	inBubble(t, func(t *testing.T, b *inmemory.Backend) {
		publish(t, b, "orders", "1")
		s, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Hour})
		require.NoError(t, err)
		ds, err := s.Receive(t.Context(), 1, 1<<20)
		require.NoError(t, err)
		require.Empty(t, codes(t, b, usual))
		time.Sleep(6 * time.Minute)
		found := codes(t, b, usual)
		require.Len(t, found, 1)
		require.Equal(t, backend.SeverityWarning, found["group-behind"].Severity)
		long := usual
		long.For = 70 * time.Second
		found = codes(t, b, long)
		require.Len(t, found, 1)
		require.Equal(t, backend.SeverityError, found["group-stuck"].Severity)

		require.NoError(t, s.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: time.Hour}}))
		found = codes(t, b, usual)
		require.Equal(t, backend.SeverityNote, found["group-retries"].Severity, "a retry may be far away by the will of the program")
		require.NoError(t, s.Close())
	})
}

// A lossy backend has lost events that a group has not got.
type lossy struct{ *inmemory.Backend }

func (b lossy) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	s, err := b.Backend.Stats(ctx, topic, group)
	s.Depth--
	return s, err
}

// A fast backend has a clock that is ahead.
type fast struct{ *inmemory.Backend }

func (b fast) Now(ctx context.Context, topic string) (time.Time, error) {
	now, err := b.Backend.Now(ctx, topic)
	return now.Add(90 * time.Second), err
}

func TestLosingAndClocks(t *testing.T) {
	inBubble(t, func(t *testing.T, b *inmemory.Backend) {
		publish(t, b, "orders", "1")
		s, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Hour})
		require.NoError(t, err)
		require.Empty(t, codes(t, b, usual))
		require.Contains(t, codes(t, lossy{b}, usual), "group-losing")
		require.Contains(t, codes(t, fast{b}, usual)["clock-skew"].Text, "1m30s ahead of the clock of this machine")
		require.NoError(t, s.Close())
	})
}

// A change of the number of partitions that was interrupted, and a partition that it has left, are found.
func TestLeftoversOfPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, b *inmemory.Backend) {
		require.NoError(t, partition.Agree(t.Context(), b, "orders", 4))
		for i := range 4 {
			require.NoError(t, backend.DeclareGroup(t.Context(), b, partition.Topic("orders", i), "billing", eventbus.StartEarliest))
		}
		require.Empty(t, codes(t, b, usual))

		publish(t, b, partition.Topic("orders", 7), "1")
		found := codes(t, b, usual)
		require.Len(t, found, 1)
		require.Equal(t, []string{"eventbus", "topics", "delete", "orders.partition-7", "--yes"}, found["partition-left"].Command)
		require.NoError(t, b.DeleteTopic(t.Context(), partition.Topic("orders", 7)))
		require.Empty(t, codes(t, b, usual))

		publish(t, b, partition.NumberTopic("orders"), `{"change":"c1","from":4,"to":8,"by":"ann","began":"`+time.Now().UTC().Format(time.RFC3339)+`"}`)
		require.Empty(t, codes(t, b, usual), "the command may be running")
		time.Sleep(10 * time.Minute)
		found = codes(t, b, usual)
		require.Len(t, found, 1)
		require.Contains(t, found["partitions-unfinished"].Text, `The number of partitions is 4. "ann" began to change it to 8`)
		require.Equal(t, []string{"eventbus", "topics", "set", "orders", "--partitions", "8", "--yes"}, found["partitions-unfinished"].Command)
		_, err := (&partition.Change{Backend: b, Topic: "orders", Number: 8, By: "ann", Confirm: func(partition.Loss) error { return nil }}).Run(t.Context())
		require.NoError(t, err)
		require.Empty(t, codes(t, b, usual))
	})
}

func handle(context.Context, *eventbus.Delivery) error { return nil }

// A partition whose token somebody else holds has no owner.
func TestPartitionWithoutOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, b *inmemory.Backend) {
		bus, err := eventbus.New(b, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 4}}})
		require.NoError(t, err)
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"}, handle)
		require.NoError(t, err)
		for len(sub.Partitions()) < 4 {
			time.Sleep(time.Second)
		}
		require.Empty(t, codes(t, b, usual))
		require.NoError(t, sub.Drain(t.Context()))

		thief, err := b.Attach(t.Context(), backend.Config{Topic: partition.OwnersTopic("orders"), Group: "billing", Lease: time.Hour})
		require.NoError(t, err)
		_, err = thief.Receive(t.Context(), 1, 1<<20)
		require.NoError(t, err)
		sub, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"}, handle)
		require.NoError(t, err)
		for len(sub.Partitions()) < 3 {
			time.Sleep(time.Second)
		}
		found := codes(t, b, usual)
		require.Len(t, found, 1)
		require.Contains(t, found["partition-free"].Text, "No member owns the partitions ")
		require.NoError(t, thief.Close())
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// A member that has died leaves its last note, until another member of its group removes it.
func TestSilentMember(t *testing.T) {
	inBubble(t, func(t *testing.T, b *inmemory.Backend) {
		require.NoError(t, partition.Agree(t.Context(), b, "orders", 4))
		publish(t, b, partition.MembersTopic("orders"), `{"member":"m1","name":"shop@host","group":"billing","owned":"0-1"}`)
		found := codes(t, b, usual)
		require.Len(t, found, 1)
		require.Contains(t, found["member-silent"].Text, `The member "shop@host" has sent no heartbeat for several seconds: it is dead or hangs. It owned the partitions 0-1.`)

		bus, err := eventbus.New(b, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 4}}})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"}, handle)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Empty(t, codes(t, b, usual))
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}
