package contract

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var publishLaws = []law.Law{
	{
		ID: "P01", Name: "publish-deliver", Promise: "every publisher's messages all reach every group, once",
		Faults: []string{"publish-loses"}, Test: publishDeliver,
	}, {
		ID: "P21", Name: "receive-while-published", Promise: "a member that receives while others publish gets every message, in order of position",
		Faults: []string{"publish-loses"}, Test: receiveWhilePublished,
	}, {
		ID: "D01", Name: "waves", Promise: "a topic that fills and empties many times loses nothing and repeats nothing",
		Faults: []string{"publish-loses", "ack-ignored"}, Test: waves,
	}, {
		ID: "P12", Name: "publisher-order", Promise: "messages from one publisher are received in publishing order",
		Faults: []string{"receive-reverses"}, Test: publisherOrder,
	}, {
		ID: "C01", Name: "batch-of-topics", Promise: "if a batch spans several topics, each topic gets its own messages, in order",
		Faults: []string{"publish-one-topic"}, Test: batchOfTopics,
	}, {
		ID: "P16", Name: "names", Promise: "topics and groups whose names differ in any way are separate",
		Faults: []string{"names-fold"}, Test: names,
	},
}

func publishDeliver(e *law.Env) {
	const publishers, each = 4, 50
	groups := []string{"a", "b", "c"}
	var sources []backend.Source
	for _, g := range groups {
		sources = append(sources, e.Attach(g))
	}
	e.Must(publishing(e, publishers, each)())
	for i, src := range sources {
		ds := e.Receive(src, publishers*each)
		e.Ack(src, ds...)
		got := law.IDs(ds)
		slices.Sort(got)
		if n := len(slices.Compact(got)); n != publishers*each {
			e.Failf("group %s got %d different messages, want %d", groups[i], n, publishers*each)
		}
		e.Nothing(src, e.Lease/2, "group "+groups[i]+" got all that was published")
	}
}

// publishing lets several publishers send one message after another, at the same time. The
// function wait returns when they have ended, with their errors.
func publishing(e *law.Env, publishers, each int) (wait func() error) {
	errs := make([]error, publishers)
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for _, m := range law.Numbered(string(rune('a'+p)), each) {
				errs[p] = errors.Join(errs[p], e.Send(m))
			}
		})
	}
	return func() error {
		wg.Wait()
		return errors.Join(errs...)
	}
}

func receiveWhilePublished(e *law.Env) {
	const publishers, each = 4, 50
	src := e.Attach("g")
	wait := publishing(e, publishers, each)
	defer wait() //nolint:errcheck // the call below checks
	got, last := map[string]bool{}, ""
	for ctx := e.Bounded(); len(got) < publishers*each && ctx.Err() == nil; {
		ds := e.Take(ctx, src, 10)
		for _, d := range ds {
			if d.Position <= last && !d.Redelivered {
				e.Failf("got position %s after %s: a message became visible after a message with a greater position", d.Position, last)
			}
			last = max(last, d.Position)
			got[d.ID] = true
		}
		e.Ack(src, ds...)
	}
	e.Must(wait())
	if len(got) < publishers*each {
		e.Failf("got %d of %d messages: the cursor of the group has passed messages that were stored later", len(got), publishers*each)
	}
}

func waves(e *law.Env) {
	src := e.Attach("g")
	for wave := range 30 {
		want := law.IDsOf(e.Publish(law.Numbered(fmt.Sprintf("%d-", wave), 20+wave)...))
		ds := e.Receive(src, len(want))
		if got := law.IDs(ds); !slices.Equal(got, want) {
			e.Failf("wave %d: got %v, want %v", wave, got, want)
		}
		e.Ack(src, ds...)
	}
	e.Nothing(src, e.Lease+e.Soon(), "all is acknowledged")
}

func publisherOrder(e *law.Env) {
	src := e.Attach("g")
	var want []string
	for _, n := range []int{1, 2, 7, 40, 1, 150} {
		batch := law.Numbered(string(rune('a'+len(want)%26)), n)
		e.Publish(batch...)
		want = append(want, law.IDsOf(batch)...)
	}
	if got := law.IDs(e.Receive(src, len(want))); !slices.Equal(got, want) {
		e.Failf("got  %v\nwant %v", got, want)
	}
}

func batchOfTopics(e *law.Env) {
	batch := []*backend.Message{
		{Topic: "a", ID: "1"}, {Topic: "b", ID: "2"}, {Topic: "a", ID: "3"}, {Topic: "c", ID: "4"}, {Topic: "b", ID: "5"},
	}
	e.Publish(batch...)
	for name, want := range map[string][]string{"a": {"1", "3"}, "b": {"2", "5"}, "c": {"4"}} {
		src := e.AttachAs(backend.Config{Topic: name, Group: "g"})
		ds := e.Receive(src, len(want))
		for i, d := range ds {
			if j := slices.IndexFunc(batch, func(m *backend.Message) bool { return m.ID == want[i] }); d.ID != want[i] ||
				d.Topic != name || d.Position != batch[j].Position {
				e.Failf("topic %s, delivery %d: got topic %s, id %s, position %s, want %s and %s", name, i, d.Topic, d.ID, d.Position, want[i], batch[j].Position)
			}
		}
		e.Nothing(src, e.Lease/4, "topic "+name+" has no more")
	}
}

func names(e *law.Env) {
	long := strings.Repeat("x", backend.MaxName-1)
	all := []string{"a.b", "a-b", "a_b", "a.B", "ab", "A.b", "a.b.c", "0", "-", "_", long + "y", long + "z"}
	var sources []backend.Source
	for _, name := range all {
		sources = append(sources, e.Attach(name))
	}
	e.Publish(&backend.Message{ID: "to all groups"})
	for i, src := range sources {
		if ds := e.ReceiveWithin(src, 1, e.Soon()); len(ds) != 1 {
			e.Failf("group %s got %d messages, want 1", all[i], len(ds))
		}
		e.Must(src.Close())
	}
	for _, name := range all {
		e.Publish(&backend.Message{Topic: name, ID: name})
	}
	for _, name := range all {
		src := e.AttachAs(backend.Config{Topic: name, Group: "g"})
		d := e.One(src)
		if d.ID != name || d.Topic != name {
			e.Failf("topic %s: got message %s of topic %s", name, d.ID, d.Topic)
		}
		e.Ack(src, d)
		e.Nothing(src, e.Lease/10, "topic "+name+" has one message")
		e.Must(src.Close())
	}
	for _, joint := range []string{".", "-", "_"} {
		pair(e, backend.Config{Topic: "t", Group: "u" + joint + "g"}, backend.Config{Topic: "t" + joint + "u", Group: "g"})
	}
}

// pair attaches a member with each of two configs. Their topics and groups differ, but are
// the same if a driver joins the two names.
func pair(e *law.Env, configs ...backend.Config) {
	e.Helper()
	var sources []backend.Source
	for _, c := range configs {
		c.Start = backend.StartLatest
		sources = append(sources, e.AttachAs(c))
	}
	for i, c := range configs {
		id := fmt.Sprintf("of group %s of topic %s", c.Group, c.Topic)
		e.Publish(&backend.Message{Topic: c.Topic, ID: id})
		d := e.One(sources[i])
		if d.ID != id || d.Topic != c.Topic {
			e.Failf("got message %q of topic %s, want %q", d.ID, d.Topic, id)
		}
		e.Ack(sources[i], d)
		e.Must(sources[i].Close())
	}
}

// refuseLaws are about messages that Publish refuses.
var refuseLaws = []law.Law{
	{
		ID: "P11", Name: "too-large", Promise: "a message whose Size exceeds the limit is refused as too large; one at the limit is not",
		Needs:  []law.Need{law.NeedPayloadLimit},
		Faults: []string{"publish-hides-failures", "publish-cleans"}, Test: tooLarge,
	}, {
		ID: "P13", Name: "batch-partial", Promise: "a refused message does not keep the others in its batch from being stored, and the errors say which was refused",
		Needs:  []law.Need{law.NeedPayloadLimit},
		Faults: []string{"batches-fail-as-one", "publish-hides-failures"}, Test: batchPartial,
	}, {
		ID: "P14", Name: "publish-done-context", Promise: "a Publish whose context is done stores nothing and says so",
		Faults: []string{"calls-ignore-contexts"}, Test: publishDoneContext,
	}, {
		ID: "P10", Name: "full-store", Promise: "a full store refuses messages with ErrFull, keeps what it has, and accepts more when there is room",
		Needs:  []law.Need{law.NeedBound},
		Faults: []string{"publish-hides-failures", "batches-fail-as-one", "remove-ignored"}, Test: fullStore,
	},
}

// filled returns a message with a key, many headers and this Size.
func filled(id string, size int) *backend.Message {
	m := &backend.Message{ID: id, Key: "key"}
	for i := range 64 {
		m.Headers.Set(fmt.Sprintf("name-%d", i), "value")
	}
	m.Payload = make([]byte, size-m.Size())
	return m
}

func tooLarge(e *law.Env) {
	src := e.Attach("g")
	limit := e.Limits.Payload
	for _, m := range []*backend.Message{{ID: "fits", Payload: make([]byte, limit-len("fits"))}, filled("filled", limit)} {
		e.Publish(m)
		d := e.One(src)
		same(e, &d.Message, m)
		e.Ack(src, d)
	}
	for _, m := range []*backend.Message{{ID: "large", Payload: make([]byte, limit)}, filled("filled", limit+1)} {
		err := e.Send(m)
		e.Is(fmt.Sprintf("Publish of a message whose Size is %d, with a limit of %d", m.Size(), limit), err, backend.ErrTooLarge)
		if !backend.NotStored(backend.ErrorAt(err, 0)) {
			e.Failf("got %v, want an error that says that nothing is stored", err)
		}
	}
	e.Publish(&backend.Message{ID: "small"})
	if d := e.One(src); d.ID != "small" {
		e.Failf("got %q, want the next message", d.ID)
	}
}

func batchPartial(e *law.Env) {
	src := e.Attach("g")
	batch := law.Numbered("", 5)
	waiting := e.Background(e.Bounded(), src, 3)
	time.Sleep(e.Lease / 4)
	start := time.Now()
	publishTooLarge(e, batch, 1, 4)
	r := <-waiting
	e.By(start, 0, "the first of the others was received")
	e.Must(r.Err)
	got := law.IDs(r.Deliveries)
	if more := 3 - len(got); more > 0 {
		got = append(got, law.IDs(e.Receive(src, more))...)
	}
	if want := []string{"0000", "0002", "0003"}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
	e.Nothing(src, e.Lease/4, "the others were refused")
	topics := law.Numbered("topics-", 5)
	for i, m := range topics {
		m.Topic = []string{"a", "b"}[i%2]
	}
	publishTooLarge(e, topics, 2, 3)
}

// publishTooLarge publishes batch, in which the messages at the indices large are too large. Only
// these messages must have an error.
func publishTooLarge(e *law.Env, batch []*backend.Message, large ...int) {
	e.Helper()
	for _, i := range large {
		batch[i].Payload = make([]byte, e.Limits.Payload)
	}
	err := e.Send(batch...)
	for i, m := range batch {
		var want error
		if slices.Contains(large, i) {
			want = backend.ErrTooLarge
		}
		if got := backend.ErrorAt(err, i); !errors.Is(got, want) || (want == nil && got != nil) {
			e.Failf("message %d, topic %s: got error %v, want %v", i, m.Topic, got, want)
		}
		if want == nil && m.Position == "" {
			e.Failf("message %d: got no position", i)
		}
	}
}

func publishDoneContext(e *law.Env) {
	src := e.Attach("g")
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	ms := law.Numbered("", 3)
	for _, m := range ms {
		m.Topic = law.Topic
	}
	err := e.Backend.Publish(ctx, ms)
	e.Is("Publish", err, context.Canceled)
	for i := range ms {
		if at := backend.ErrorAt(err, i); !backend.NotStored(at) && !errors.Is(at, backend.ErrUnknownOutcome) {
			e.Failf("message %d: got error %v, want one that says whether it may be stored", i, at)
		}
	}
	e.Nothing(src, e.Lease/2, "the context was done before Publish")
}

func fullStore(e *law.Env) {
	const room = 8
	e.OpenBounded(room)
	src := e.Attach("g")
	var stored []string
	for _, m := range law.Numbered("", 4*room) {
		err := e.Send(m)
		if err == nil {
			stored = append(stored, m.ID)
			continue
		}
		e.Is("Publish", err, backend.ErrFull)
	}
	if len(stored) == 0 || len(stored) == 4*room {
		e.Failf("%d of %d were stored, want about %d", len(stored), 4*room, room)
	}
	ds := e.Receive(src, len(stored))
	if got := law.IDs(ds); !slices.Equal(got, stored) {
		e.Failf("got %v, want what was stored: %v", got, stored)
	}
	e.Ack(src, ds...)
	e.Maintain("g")
	e.Publish(&backend.Message{ID: "later"})
	d := e.One(src)
	if d.ID != "later" {
		e.Failf("got %q, want what was published when there was room", d.ID)
	}
	e.Ack(src, d)
	e.Maintain("g")
	fullBatch(e, src, 4*room)
	e.Maintain("g")
	if _, ok := backend.As[backend.Remover](e.Backend); ok {
		for range 4 * room { // Remove makes room, although the group has not settled the message
			removes(e, e.Publish(&backend.Message{ID: "to be removed"})...)
		}
	}
}

// fullBatch publishes a batch of n messages, for which the store has no room. Exactly the
// messages without an error must be stored.
func fullBatch(e *law.Env, src backend.Source, n int) {
	e.Helper()
	batch := law.Numbered("batch-", n)
	err := e.Send(batch...)
	var stored []string
	for i, m := range batch {
		at := backend.ErrorAt(err, i)
		if at == nil {
			stored = append(stored, m.ID)
			continue
		}
		e.Is(fmt.Sprintf("message %d of a batch", i), at, backend.ErrFull)
	}
	if len(stored) == n {
		e.Failf("a batch of %d messages was stored, want some of them refused", n)
	}
	ds := e.Receive(src, len(stored))
	if got := law.IDs(ds); !slices.Equal(got, stored) {
		e.Failf("got %v of a batch, want the messages that had no error: %v", got, stored)
	}
	e.Nothing(src, e.Lease/4, fmt.Sprintf("of a batch of %d messages, %d had an error, so they are not stored", n, n-len(stored)))
	e.Ack(src, ds...)
}

// contentLaws are about the content of messages.
var contentLaws = []law.Law{
	{
		ID: "P18", Name: "payload-round-trip", Promise: "payloads arrive as published, byte for byte",
		Faults: []string{"publish-cleans"}, Test: payloadRoundTrip,
	}, {
		ID: "P24", Name: "large-batch", Promise: "without Limits.Batch, a batch of 1,500 items can be published, extended, given back and acknowledged in one call each",
		Faults: []string{"batches-of-1000"}, Test: largeBatch,
	}, {
		ID: "P17", Name: "header-round-trip", Promise: "header names and values arrive exactly as published",
		Faults: []string{"publish-cleans"}, Test: headerRoundTrip,
	}, {
		ID: "X07", Name: "hostile-text", Promise: "IDs, keys and header values are treated as data, whatever they contain",
		Faults: []string{"publish-cleans"}, Test: hostileText,
	}, {
		ID: "D12", Name: "stable-identity", Promise: "a message is the same on every receipt",
		Faults: []string{"receive-shares-memory"}, Test: stableIdentity,
	}, {
		ID: "C02", Name: "lent-until-return", Promise: "the caller may modify what it passed to Publish once Publish has returned",
		Faults: []string{"lent-memory-kept"}, Test: lentUntilReturn,
	}, {
		ID: "C03", Name: "receivers-own", Promise: "the receiver may modify what Receive returns without affecting any other receipt",
		Faults: []string{"receive-shares-memory"}, Test: receiversOwn,
	},
}

// same expects that the delivered message got equals the published message want.
func same(e *law.Env, got *backend.Message, want *backend.Message) {
	e.Helper()
	switch {
	case got.Topic != want.Topic:
		e.Failf("message %q: got topic %q, want %q", want.ID, got.Topic, want.Topic)
	case got.ID != want.ID:
		e.Failf("got ID %q, want %q", got.ID, want.ID)
	case got.Key != want.Key:
		e.Failf("message %q: got key %q, want %q", want.ID, got.Key, want.Key)
	case got.Position != want.Position:
		e.Failf("message %q: got position %q, want %q", want.ID, got.Position, want.Position)
	case !bytes.Equal(got.Payload, want.Payload):
		e.Failf("message %q: got a payload of %d bytes %.40q, want %d bytes %.40q", want.ID,
			len(got.Payload), got.Payload, len(want.Payload), want.Payload)
	}
	g, w := sorted(got.Headers), sorted(want.Headers)
	if !slices.Equal(g, w) {
		e.Failf("message %q: got headers %q, want %q", want.ID, g, w)
	}
}

func sorted(h backend.Headers) backend.Headers {
	return slices.SortedFunc(slices.Values(h), func(a, b backend.Header) int { return cmp.Compare(a.Name, b.Name) })
}

// roundTrip publishes ms and expects to receive equal messages, one by one.
func roundTrip(e *law.Env, ms ...*backend.Message) {
	e.Helper()
	src := e.Attach("round-trip")
	e.Publish(ms...)
	for _, m := range ms {
		d := e.One(src)
		same(e, &d.Message, m)
		e.Ack(src, d)
	}
}

func payloadRoundTrip(e *law.Env) {
	large := make([]byte, 1<<20-64<<10)
	if e.Limits.Payload > 0 {
		large = large[:min(len(large), e.Limits.Payload-100)]
	}
	rand.NewChaCha8([32]byte{'p'}).Read(large) //nolint:errcheck // it never fails
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	var ms []*backend.Message
	for i, p := range [][]byte{
		nil,
		{0},
		[]byte("a\x00b"), []byte("\r\n\r\n\n"), []byte("\xff\xfe\x80"), []byte(" outer spaces\t"), every,
		large[:4<<10], large[:4<<10+1], large[:min(64<<10, len(large))], large,
	} {
		ms = append(ms, &backend.Message{ID: fmt.Sprint(i), Payload: p})
	}
	roundTrip(e, ms...)
}

func largeBatch(e *law.Env) {
	n := cmp.Or(e.Limits.Batch, 1500)
	src := e.AttachAs(backend.Config{Group: "g", MaxInFlight: n, Lease: 10 * e.Lease})
	e.Persist("Publish", func() error { return e.Send(law.Numbered("", n)...) })
	ds := e.Receive(src, n)
	if e.Claims(law.NeedExtender) {
		e.Persist("Extend", func() error { return e.Extend(src, ds...) })
	}
	if e.Claims(law.NeedDelayer) {
		e.Persist("Delay", func() error { return e.Delay(src, 0, ds...) })
		ds = e.Receive(src, n)
	}
	e.Ack(src, ds...)
	e.Nothing(src, e.Lease/4, "all are acknowledged")
}

func headerRoundTrip(e *law.Env) {
	var h backend.Headers
	for i, v := range []string{
		"", " leading", "trailing ", "   ", "in  between", "a=b", "a:b", "a: b", "100%", "%20%0d%0a", "+", "ü ß 漢字 🙂", "\u00a0\u2028",
		"a,b;c", `"quoted"`, `\back\slash`, "https://x.example/?a=b&c=d#e", "{}", "null", "0", strings.Repeat("x", 8<<10),
	} {
		h.Set(fmt.Sprintf("value-%d", i), v)
	}
	// A driver may use some of these names itself, for example "id". Other names, such as
	// "ID" and "Id", differ in case only.
	for _, name := range []string{"id", "ID", "Id", "key", "topic", "once", "payload", "time", "content-type", "Content-Type", "a.b_c-d", "0"} {
		h.Set(name, "value of "+name)
	}
	var many backend.Headers
	for i := range 128 { // the most that the bus sends; see backend.Message
		many.Set(fmt.Sprintf("name-%d", i), strings.Repeat("v", 48<<10/128-10))
	}
	roundTrip(e,
		&backend.Message{ID: "some", Headers: h, Payload: []byte("p")},
		&backend.Message{ID: "none"},
		&backend.Message{ID: "many", Headers: many},
		&backend.Message{ID: "one", Headers: backend.Headers{{Name: "a", Value: "b"}}},
	)
}

func hostileText(e *law.Env) {
	var ms []*backend.Message
	for _, text := range []string{
		"", "it's", `"quoted"`, "`tick`", `back\slash`, "'; return redis.call('FLUSHALL') --", "]] .. os.exit() .. [[", "${a}", "$(a)", "%s%n%",
		"*", ">", "a.*", "a.>", "$JS.API.>", ".", "..", "/", "{", "}", "{}", "{a}:b", "a:b", "a b", " outer spaces ", "+1", "0", "-1", "null", "ünïcödé 漢字 🙂",
		"line\nbreak", "carriage\r\nreturn", "\r\n\r\n", "tab\tstop", "nul\x00byte", "\x7f", "*3\r\n$3\r\nDEL\r\n$1\r\na\r\n",
		strings.Repeat("x", 512), strings.Repeat("é", 256),
	} {
		m := &backend.Message{ID: text, Key: text, Payload: []byte(text), Once: e.Limits.OnceWindow > 0}
		m.Headers.Set("value", strings.Map(printable, text))
		m.Headers.Set("'%s'`$x|~^*!#&+.-_", "name")
		ms = append(ms, m)
	}
	roundTrip(e, ms...)
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return -1
	}
	return r
}

func stableIdentity(e *law.Env) {
	src := e.Attach("g")
	m := &backend.Message{ID: "id", Key: "key", Headers: backend.Headers{{Name: "a", Value: "b"}, {Name: "c", Value: "d"}}, Payload: []byte("\x00payload")}
	e.Publish(m)
	for range 3 {
		d := e.One(src)
		same(e, &d.Message, m)
	}
}

func lentUntilReturn(e *law.Env) {
	src := e.Attach("g")
	for i, size := range []int{10, 100 << 10} {
		m := &backend.Message{ID: fmt.Sprint(i), Payload: bytes.Repeat([]byte("a"), size), Headers: backend.Headers{{Name: "name", Value: "value"}}}
		e.Publish(m)
		want := *m
		want.Payload, want.Headers = bytes.Clone(m.Payload), slices.Clone(m.Headers)
		copy(m.Payload, bytes.Repeat([]byte("b"), size))
		m.Headers[0] = backend.Header{Name: "other", Value: "other"}
		m.ID, m.Key = "other", "other"
		d := e.One(src)
		same(e, &d.Message, &want)
	}
}

func receiversOwn(e *law.Env) {
	one, two := e.Attach("one"), e.Attach("two")
	ms := law.Numbered("", 5)
	for _, m := range ms {
		m.Headers = backend.Headers{{Name: "name", Value: m.ID}}
	}
	e.Publish(ms...)
	ds := e.Receive(one, len(ms))
	for i := range ds {
		d := &ds[i]
		same(e, &d.Message, ms[i]) // the loop changes each delivery, and this must not change the next delivery of the same Receive
		for j := range d.Payload {
			d.Payload[j] = 'x'
		}
		d.Payload = append(d.Payload, "and more of it"...)
		d.Headers[0] = backend.Header{Name: "x", Value: "x"}
		d.Headers = append(d.Headers, backend.Header{Name: "more", Value: "more"})
	}
	for _, src := range []backend.Source{two, one} {
		for i, d := range e.Receive(src, len(ms)) {
			same(e, &d.Message, ms[i])
		}
	}
}
