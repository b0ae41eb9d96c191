package nats_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/nats"
)

// A stream whose settings break promises is refused with the reason, and left unchanged.
func TestStreamDrift(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*jetstream.StreamConfig)
		says   string
	}{
		"discards old":             {func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, "discard is DiscardOld"},
		"work queue":               {func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, "retention is WorkQueue"},
		"interest":                 {func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, "retention is Interest"},
		"other subjects":           {func(c *jetstream.StreamConfig) { c.Subjects = []string{ordersSubject, "more"} }, "subjects is [" + ordersSubject + " more]"},
		"max messages per subject": {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, "max messages per subject is 5"},
		"no acknowledgements":      {func(c *jetstream.StreamConfig) { c.NoAck = true }, "no ack is true"},
		"short duplicate window":   {func(c *jetstream.StreamConfig) { c.Duplicates = time.Second }, "duplicate window is 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, nats.Options{})
			config := streamConfig()
			row.change(&config)
			s, err := p.js.CreateStream(t.Context(), config)
			require.NoError(t, err)
			before := s.CachedInfo().Config

			_, err = p.b.Attach(t.Context(), member())
			require.ErrorIs(t, err, backend.ErrRefused)
			require.ErrorContains(t, err, ordersStream)
			require.ErrorContains(t, err, row.says)
			err = p.b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "1"}})
			require.ErrorIs(t, backend.ErrorAt(err, 0), backend.ErrRefused)
			require.ErrorContains(t, err, row.says)

			after, err := s.Info(t.Context())
			require.NoError(t, err)
			require.Equal(t, before, after.Config, "the stream was changed")
			require.Zero(t, after.State.LastSeq, "something was stored")
			require.Zero(t, after.State.Consumers, "a group was made")
		})
	}
}

// A stream with harmless differences is used, and Notify reports them.
func TestStreamOfOtherSize(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		options nats.Options
		change  func(*jetstream.StreamConfig)
		says    string
	}{
		"replicas":     {nats.Options{Replicas: 3}, func(*jetstream.StreamConfig) {}, "replicas is 1, not 3"},
		"storage":      {nats.Options{}, func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, "storage is Memory, not File"},
		"max bytes":    {nats.Options{MaxBytes: 1 << 30}, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, "max bytes is 1048576, not 1073741824"},
		"persist mode": {nats.Options{}, func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }, "a crash of the server loses messages) is Async"},
		"deny delete":  {nats.Options{}, func(c *jetstream.StreamConfig) { c.DenyDelete = true }, "redrives) is true"},
		"message TTLs": {nats.Options{}, func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }, "expire) is true"},
		"rollups":      {nats.Options{}, func(c *jetstream.StreamConfig) { c.AllowRollup = true }, "remove all messages) is true"},
		"max age":      {nats.Options{}, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, "has not got it) is 1h0m0s, not 0s"},
		"max messages": {nats.Options{MaxMessages: 9}, func(c *jetstream.StreamConfig) { c.MaxMsgs = 8 }, "max messages is 8, not 9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, row.options)
			config := streamConfig()
			row.change(&config)
			s, err := p.js.CreateStream(t.Context(), config)
			require.NoError(t, err)
			before := s.CachedInfo().Config
			var notices []string
			c := member()
			c.Notify = func(n backend.Notice) { notices = append(notices, n.Text) }
			_, err = p.b.Attach(t.Context(), c)
			require.NoError(t, err)
			require.Len(t, notices, 1)
			require.Contains(t, notices[0], row.says)
			require.NoError(t, p.b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "1"}}))
			after, err := s.Info(t.Context())
			require.NoError(t, err)
			require.Equal(t, before, after.Config, "the stream was changed")
		})
	}
}

// An unsuitable consumer of the group's name is refused with the reason, and left
// unchanged.
func TestConsumerDrift(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*jetstream.ConsumerConfig)
		says   string
	}{
		"acknowledges all":    {func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }, "ack policy is AckAll"},
		"acknowledges none":   {func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy; c.MaxAckPending = 0 }, "ack policy is AckNone"},
		"pushes":              {func(c *jetstream.ConsumerConfig) { c.DeliverSubject = "there" }, "deliver subject is there"},
		"filtered":            {func(c *jetstream.ConsumerConfig) { c.FilterSubject = "more" }, "filter is [more]"},
		"headers only":        {func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }, "headers only is true"},
		"deleted when unused": {func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Hour }, "inactive threshold is 1h0m0s"},
		"replays in time":     {func(c *jetstream.ConsumerConfig) { c.ReplayPolicy = jetstream.ReplayOriginalPolicy }, "replay policy is"},
		"has priorities": {func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"a"}
		}, "priority policy is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, nats.Options{})
			s, err := p.js.CreateStream(t.Context(), streamConfig())
			require.NoError(t, err)
			if name == "filtered" { // a filter needs a stream with several subjects
				c := streamConfig()
				c.Subjects = []string{ordersSubject, "more"}
				_, err = p.js.UpdateStream(t.Context(), c)
				require.NoError(t, err)
			}
			config := consumerConfig()
			row.change(&config)
			info := func() *jetstream.ConsumerInfo {
				if config.DeliverSubject != "" {
					c, err := s.PushConsumer(t.Context(), "g")
					require.NoError(t, err)
					return c.CachedInfo()
				}
				c, err := s.Consumer(t.Context(), "g")
				require.NoError(t, err)
				return c.CachedInfo()
			}
			if config.DeliverSubject != "" {
				_, err = s.CreatePushConsumer(t.Context(), config)
			} else {
				_, err = s.CreateConsumer(t.Context(), config)
			}
			require.NoError(t, err)
			if name == "filtered" {
				_, err = p.js.UpdateStream(t.Context(), streamConfig())
				require.NoError(t, err)
			}
			before := info().Config
			_, err = p.b.Attach(t.Context(), member())
			require.ErrorIs(t, err, backend.ErrRefused)
			require.ErrorContains(t, err, "consumer g")
			require.ErrorContains(t, err, row.says)
			require.Equal(t, before, info().Config, "the consumer was changed")
		})
	}
}
