package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/observer"
)

func TestTail(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.ok(numbered(250), "pub", "orders")
		all := b.ok("", "tail", "orders").events(t)
		require.Len(t, all, 250)
		require.Equal(t, "e-0", all[0].ID)
		require.Equal(t, "orders", all[0].Topic)
		require.Empty(t, all[0].Group)
		require.Zero(t, all[0].Attempt)
		require.JSONEq(t, `{"n":249}`, string(all[249].Data))

		require.Len(t, b.ok("", "tail", "orders", "--count", "120").lines(), 120)
		after := b.ok("", "tail", "orders", "--from", all[199].Position).events(t)
		require.Len(t, after, 50)
		require.Equal(t, "e-200", after[0].ID)
		require.Empty(t, b.ok("", "tail", "orders", "--from", "latest").lines())

		for _, row := range []struct {
			args []string
			want string
		}{
			{[]string{"tail", "nowhere"}, " read nowhere: gone"},
			{[]string{"tail", "orders", "--count", "-1"}, "eventbus: tail: --count is negative\n"},
			{[]string{"tail", "orders", "--from", ""}, "eventbus: tail: --from is empty\n"},
			{[]string{"tail", "orders", "--from", "yesterday"}, " read orders: "},
		} {
			r := b.run("", row.args...)
			require.Equal(t, 1, r.code)
			require.True(t, strings.HasPrefix(r.stderr, "eventbus: tail: "), r.stderr)
			require.Contains(t, r.stderr, row.want)
			require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		}
	})
}

func TestTailFollows(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		tail := b.start("tail", "orders", "--follow") // a topic that does not exist yet
		b.ok(numbered(3), "pub", "orders")
		await(t, "three", func() bool { return strings.Count(tail.out.String(), "\n") == 3 })
		latest := b.start("tail", "orders", "--follow", "--from", "latest", "--count", "2")
		await(t, "two of four", func() bool { // because the moment of its start is unknown
			b.ok("", "pub", "orders", "--data", "more")
			return strings.Contains(latest.out.String(), "more")
		})
		b.ok("", "pub", "orders", "--data", "last")
		r := latest.wait()
		require.Zero(t, r.code, r.stderr)
		require.Len(t, r.lines(), 2)
		await(t, "all", func() bool { return strings.Contains(tail.out.String(), "last") })
		r = tail.end()
		require.Zero(t, r.code, "an interrupt is how it ends")
		require.Empty(t, r.stderr)
		for i, e := range r.events(t)[:3] {
			require.Equal(t, fmt.Sprintf("e-%d", i), e.ID)
		}
	})
}

// An error that passes does not let tail begin before the end of the topic.
func TestTailFromLatestSurvivesAnError(t *testing.T) {
	t.Parallel()
	mem := inmemory.New(inmemory.Options{})
	defer func() { require.NoError(t, mem.Close()) }()
	m := &backend.Message{Topic: "orders", ID: "old"}
	require.NoError(t, mem.Publish(t.Context(), []*backend.Message{m}))
	tail := tail{from: "latest", follow: true, connection: connection{timeout: time.Minute}}
	for _, passing := range []error{backend.ErrUnavailable, backend.ErrUnknownOutcome} {
		position, err := tail.begin(t.Context(), &away{Reader: mem, err: passing}, "orders")
		require.NoError(t, err)
		require.Equal(t, backend.StartAfter(m.Position), position)
	}
}

// away is a Reader whose first read fails with err.
type away struct {
	backend.Reader
	err  error
	back bool
}

func (a *away) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	if !a.back {
		a.back = true
		return nil, a.err
	}
	return a.Reader.Read(ctx, topic, from, limit)
}

func TestBackendsThatCannot(t *testing.T) {
	b := newBench(t)
	b.b = struct{ backend.Backend }{b.mem} // the six methods only
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"tail", "orders"}, "tail: this backend cannot be read without a group: unsupported operation; use sub"},
		{[]string{"topics"}, "topics: this backend cannot list topics and groups: unsupported operation"},
		{[]string{"groups"}, "groups: this backend cannot list topics and groups: unsupported operation"},
		{[]string{"ping"}, "ping: this backend cannot be pinged: unsupported operation"},
		{[]string{"pub", "orders", "--once"}, "pub: Options.Dedup is set, but the backend does not remember IDs"},
	} {
		r := b.run("", row.args...)
		require.Equal(t, 1, r.code)
		require.Equal(t, "eventbus: "+row.want+"\n", r.stderr)
	}
	b.ok(numbered(3), "pub", "orders")
	r := b.ok("", "sub", "orders", "--group", "g", "--idle-exit", "300ms", "--timeout", "5s")
	require.Len(t, r.lines(), 3, "where the backend can tell nothing, only time counts")
}

// The records about one group, or about all groups, are shown and followed.
func TestTailOfTheLifecycle(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		follow := b.start("tail", "--lifecycle", "orders/billing", "--follow", "--count", "2")
		r := lifecycle.New(lifecycle.Options{})
		require.NoError(t, r.Start(t.Context(), b.b))
		for i, group := range []string{"billing", "audit", "billing"} {
			r.Observer().Started(observer.Started{About: observer.About{Topic: "orders", Group: group, ID: fmt.Sprint(i), Type: "order.placed", Attempt: 1}})
		}
		require.NoError(t, r.Close(t.Context()))
		b.ok(numbered(1), "pub", "orders.lifecycle") // no record
		await(t, "the end of tail", func() bool { return strings.Count(follow.out.String(), "\n") == 2 })
		require.NotContains(t, follow.out.String(), "audit")
		require.Len(t, b.ok("", "tail", "--lifecycle", "orders").lines(), 3)
		require.Empty(t, b.ok("", "tail", "--lifecycle", "orders/nobody").lines())
		line := b.ok("", "tail", "--lifecycle", "orders/audit").lines()[0]
		var rec lifecycle.Record
		require.NoError(t, json.Unmarshal([]byte(line), &rec))
		require.Equal(t, lifecycle.Record{
			State: lifecycle.Active, Topic: "orders", Group: "audit", ID: "1", Type: "order.placed", Attempt: 1, Time: rec.Time,
		}, rec)
		require.Contains(t, b.run("", "tail", "--lifecycle", "orders/a b").stderr, "tail: group ")
		require.Contains(t, b.run("", "tail", "orders/billing").stderr, "tail: topic ")
	})
}
