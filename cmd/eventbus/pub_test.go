package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

func TestPubOneEvent(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want string // apart from id, source and time
	}{
		{"JSON", []string{"--data", `{"a": 1}`, "--key", "k", "--type", "order.placed", "--id", "i"}, `"type":"order.placed","source":"eventbus","key":"k",`},
		{"JSON is known", []string{"--data", `{"a": 1}`}, `"position":"0000000000000001","data":{"a": 1}}`},
		{"text is known", []string{"--data", "three apples"}, `"content_type":"text/plain; charset=utf-8","data":"three apples"}`},
		{"a type is given", []string{"--data", "<a/>", "--content-type", "text/xml"}, `"content_type":"text/xml","data":"<a/>"}`},
		{"nothing", []string{"--data", ""}, `"position":"0000000000000001"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			r := b.ok("not read", append([]string{"pub", "orders"}, row.args...)...)
			require.Equal(t, "stored 1 event in orders\n", r.stdout)
			require.Empty(t, r.stderr)
			got := b.ok("", "tail", "orders").stdout
			e := result{stdout: got}.events(t)
			require.Len(t, e, 1)
			require.NotEmpty(t, e[0].ID)
			got = strings.ReplaceAll(got, e[0].Position, "0000000000000001")
			require.Contains(t, got, row.want)
		})
	}
}

func TestPubManyEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 20_000
	r := b.ok(numbered(n), "pub", "orders")
	require.Equal(t, fmt.Sprintf("stored %d events in orders\n", n), r.stdout)
	for i, e := range b.ok("", "tail", "orders").events(t) {
		require.Equal(t, fmt.Sprintf("e-%d", i), e.ID)
	}
	r = b.ok("{\"data\":1}\n{\"data\":2,\"key\":\"own\",\"type\":\"own\"}", "pub", "more", "--key", "k", "--type", "t", "--json")
	require.Contains(t, r.stdout, `"stored": 2`)
	require.NotContains(t, r.stdout, "duplicates")
	events := b.ok("", "tail", "more").events(t)
	require.Equal(t, []string{"k", "own"}, []string{events[0].Key, events[1].Key})
	require.Equal(t, []string{"t", "own"}, []string{events[0].Type, events[1].Type})
	require.Contains(t, r.stdout, fmt.Sprintf(`"position": %q`, events[1].Position))
	require.Equal(t, "stored 0 events in orders\n", b.ok("", "pub", "orders").stdout)
}

func TestPubReadsAFile(t *testing.T) {
	b := newBench(t)
	name := file(t, numbered(3)+"what\n")
	r := b.run("", "pub", "orders", "--input", name)
	require.Equal(t, 1, r.code)
	require.Empty(t, r.stdout)
	require.Equal(t, "eventbus: pub: "+name+":4: not an event as JSON: it does not begin with {; published: 3 events\n", r.stderr)
	require.Len(t, b.ok("", "tail", "orders").lines(), 3)
}

func TestPubOnce(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		r := b.ok(numbered(10), "pub", "orders", "--once")
		require.Equal(t, "stored 10 events in orders, 0 were already there\n", r.stdout)
		r = b.ok(numbered(12), "pub", "orders", "--once")
		require.Equal(t, "stored 2 events in orders, 10 were already there\n", r.stdout)
		r = b.ok("", "pub", "orders", "--once", "--data", "x", "--id", "e-3", "--json")
		require.Contains(t, r.stdout, `"stored": 0`)
		require.Contains(t, r.stdout, `"duplicates": 1`)
		require.Len(t, b.ok("", "tail", "orders").lines(), 12)

		r = b.run("{\"id\":\"new\"}\n{}\n", "pub", "orders", "--once")
		require.Equal(t, 1, r.code)
		require.Equal(t, "eventbus: pub: standard input:2: the event has no id, which --once needs to recognize it; published: 1 event\n", r.stderr)
	})
}

func TestPubRefuses(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"pub"}, "pub: needs a topic: eventbus pub TOPIC"},
		{[]string{"pub", "a", "b"}, `pub: unexpected argument "b"`},
		{[]string{"pub", "a b"}, `pub: topic "a b" contains ' '`},
		{[]string{"pub", "redis://u:secret@h", "x"}, "pub: a URL is given with --url"},
		{[]string{"pub", "a", "--data", "x", "--input", "f"}, "pub: give --data or --input, not both"},
		{[]string{"pub", "a", "--data", "x", "--once"}, "pub: the event has no id, which --once needs to recognize it"},
		{[]string{"pub", "a", "--id", "x"}, "pub: --id goes with --data"},
		{[]string{"pub", "a", "--content-type", "x"}, "pub: --content-type goes with --data"},
		{[]string{"pub", "a", "--data", strings.Repeat("x", 1<<20)}, "pub: events[0].Payload has 1048576 bytes, more than 983040"},
		{[]string{"pub", "a", "--input", ""}, "pub: --input is empty"},
		{[]string{"pub", "a", "--input", "/nowhere/at-all"}, "pub: open /nowhere/at-all: no such file"},
		{[]string{"pub", "a", "--connect-timeout", "0s"}, "pub: --connect-timeout must be positive"},
	} {
		b := newBench(t)
		r := b.run("", row.args...)
		require.Equal(t, 1, r.code)
		require.Empty(t, r.stdout)
		require.True(t, strings.HasPrefix(r.stderr, "eventbus: "+row.want), "%s\nwant %s", r.stderr, row.want)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"))
		require.NotContains(t, r.stderr, "secret")
	}
}

// lossy fails from a given message on.
type lossy struct {
	backend.Backend
	left int
	err  error
}

func (l *lossy) Unwrap() backend.Backend { return l.Backend }

func (l *lossy) Publish(ctx context.Context, msgs []*backend.Message) error {
	n := min(l.left, len(msgs))
	l.left -= n
	errs := make([]error, len(msgs))
	for i := n; i < len(msgs); i++ {
		errs[i] = l.err
	}
	if err := l.Backend.Publish(ctx, msgs[:n]); err != nil {
		return err
	}
	return backend.AsBatchError(errs)
}

func TestPubSaysWhatIsPublished(t *testing.T) {
	b := newBench(t)
	b.b = &lossy{Backend: b.mem, left: 700, err: fmt.Errorf("cut off: %w", backend.ErrUnknownOutcome)}
	r := b.run(numbered(1000), "pub", "orders")
	require.Equal(t, 1, r.code)
	require.Equal(t, "eventbus: pub: standard input:701: cut off: outcome unknown; published: 700 events, and perhaps more\n", r.stderr)
	require.Len(t, b.ok("", "tail", "orders").lines(), 700)
}

func TestPubEndsWithASignal(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	from, to := io.Pipe()
	defer to.Close()
	go func() {
		fmt.Fprint(to, numbered(3))
		await(t, "three are stored", func() bool {
			ms, _ := b.mem.Read(t.Context(), "orders", "", 10)
			return len(ms) == 3
		})
		cancel(errors.New("interrupt signal received"))
	}()
	var out, errs safeBuffer
	code := run(ctx, []backend.Driver{sharedDriver{b.b}}, []string{"pub", "orders", "--url", "test:"}, from, &out, &errs)
	require.Equal(t, 1, code, "the input is not all published")
	require.Equal(t, "eventbus: pub: interrupt signal received; published: 3 events\n", errs.String())
}

// pub reads the output of tail and sub, so a topic can be copied.
func TestPubCopiesATopic(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.ok("", "pub", "from", "--data", "text")
		b.ok("", "pub", "from", "--data", "\xff\xfe", "--key", "k")
		b.ok(`{"id":"e","subject":"s","headers":{"a":"b"},"time":"2026-03-02T08:00:00Z","data":[1, 2]}`, "pub", "from")
		b.ok(b.ok("", "tail", "from").stdout, "pub", "to")
		read := func(topic string) []backend.Message {
			ms := b.read(topic)
			require.Len(t, ms, 3)
			for i := range ms {
				ms[i].Topic, ms[i].Position = "", ""
				slices.SortFunc(ms[i].Headers, func(a, b backend.Header) int { return strings.Compare(a.Name, b.Name) })
			}
			return ms
		}
		require.Equal(t, read("from"), read("to"))
	})
}
