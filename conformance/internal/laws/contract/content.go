package contract

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// contentLaws are about the content of messages.
var contentLaws = []law.Law{
	{
		ID: "P18", Name: "payload-round-trip", Promise: "payloads arrive as published, byte by byte",
		Faults: []string{"publish-cleans"}, Test: payloadRoundTrip,
	}, {
		ID: "P24", Name: "large-batch", Promise: "without Limits.Batch, a batch of 1,500 items is published, extended, given back and acknowledged by one call each",
		Faults: []string{"batches-of-1000"}, Test: largeBatch,
	}, {
		ID: "P17", Name: "header-round-trip", Promise: "header names and values arrive exactly as published",
		Faults: []string{"publish-cleans"}, Test: headerRoundTrip,
	}, {
		ID: "X07", Name: "hostile-text", Promise: "IDs, keys and header values are data, whatever they contain",
		Faults: []string{"publish-cleans"}, Test: hostileText,
	}, {
		ID: "D12", Name: "stable-identity", Promise: "a message is the same on every receipt",
		Faults: []string{"receive-shares-memory"}, Test: stableIdentity,
	}, {
		ID: "C02", Name: "lent-until-return", Promise: "what Publish was given may be changed once it has returned",
		Faults: []string{"lent-memory-kept"}, Test: lentUntilReturn,
	}, {
		ID: "C03", Name: "receivers-own", Promise: "what Receive gives may be changed; no other receipt notices",
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
	for i := range 128 { // the most that the bus sends, see backend.Message
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
