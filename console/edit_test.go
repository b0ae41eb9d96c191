package console_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/internal/letter"
)

// editable publishes a letter of billing with some headers.
func editable(t testing.TB, m *countingBackend, more ...eventbus.Header) {
	t.Helper()
	attach(t, m, "orders", "billing")
	headers := append(backend.Headers{
		{Name: letter.Reason, Value: "exhausted"},
		{Name: letter.Group, Value: "billing"},
		{Name: letter.Topic, Value: "orders"},
		{Name: letter.ID, Value: "e-1"},
	}, more...)
	require.NoError(t, m.Publish(t.Context(), []*backend.Message{{Topic: "orders.dlq", ID: "l", Payload: []byte("{}"), Headers: headers}}))
}

// An edit of headers loses none of them: names can be swapped, and given on.
func TestEditHeaders(t *testing.T) {
	for name, row := range map[string]struct {
		edit []string // fields of the form, in which aa is the first header
		want map[string]string
	}{
		"swap the names":             {[]string{"name0", "bb", "name1", "aa"}, map[string]string{"bb": "1", "aa": "2"}},
		"take the name of a removed": {[]string{"name0", "bb", "name1", ""}, map[string]string{"aa": "", "bb": "1"}},
		"take a name that moves on":  {[]string{"name0", "bb", "name1", "cc"}, map[string]string{"aa": "", "bb": "1", "cc": "2"}},
		"change a value":             {[]string{"value1", "3"}, map[string]string{"aa": "1", "bb": "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *countingBackend) {
				editable(t, m, eventbus.Header{Name: "aa", Value: "1"}, eventbus.Header{Name: "bb", Value: "2"})
				h := change(t, m, console.Options{})
				p := h.submit(h.submit(h.letter("orders.dlq", 0), "edit"), "edit", row.edit...)
				require.Equal(t, "1 dead letter redriven", p.byID("result"), p.text)
				got := last(t, m, "orders")
				for name, want := range row.want {
					require.Equal(t, want, got.Headers.Get(name), name)
				}
			})
		})
	}
}

// The console refuses an edited payload that is no JSON, although its content type says so.
func TestEditedJSONIsValid(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		editable(t, m, eventbus.Header{Name: "ce-datacontenttype", Value: "application/json"})
		h := change(t, m, console.Options{})
		form := func() page { return h.submit(h.letter("orders.dlq", 0), "edit") }
		p := h.submit(form(), "edit", "payload", `{"total":3,}`)
		require.Contains(t, p.text, "the edited payload is not valid JSON, although its conten")
		p = h.submit(form(), "edit", "payload", `{"total":3}`)
		require.Equal(t, "1 dead letter redriven", p.byID("result"), p.text)
		require.Equal(t, `{"total":3}`, string(last(t, m, "orders").Payload))
	})
}

// An edit that would remove a header which the visitor did not mean is refused, and the letter stays.
func TestEditRefusesToLoseAHeader(t *testing.T) {
	for name, row := range map[string]struct {
		headers []eventbus.Header
		redact  func(string, *eventbus.Event)
		edit    []string
		why     string
	}{
		"renamed to another one": {[]eventbus.Header{{Name: "aa"}, {Name: "bb"}}, nil, []string{"name0", "bb"}, `there would be two headers named "bb"`},
		"added twice":            {nil, nil, []string{"name0", "cc", "name1", "cc"}, `there would be two headers named "cc"`},
		"stored twice": {
			[]eventbus.Header{{Name: "aa", Value: "1"}, {Name: "aa", Value: "2"}},
			nil,
			[]string{"value1", "3"},
			`the event has 2 headers named "aa"`,
		},
		"of another name than it is stored": {
			[]eventbus.Header{{Name: "aa", Value: "1"}},
			func(_ string, e *eventbus.Event) {
				if e.Headers.Get("aa") != "" {
					e.Headers.Del("aa")
					e.Headers.Set("zz", "1")
				}
			},
			[]string{"value0", "3"},
			`the event has 0 headers named "zz"`,
		},
		"hidden": {
			[]eventbus.Header{{Name: "aa", Value: "1"}},
			func(_ string, e *eventbus.Event) { e.Headers.Del("aa") },
			[]string{"name0", "aa", "value0", "3"},
			`there would be two headers named "aa"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *countingBackend) {
				editable(t, m, row.headers...)
				h := change(t, m, console.Options{Redact: row.redact})
				p := h.submit(h.submit(h.letter("orders.dlq", 0), "edit"), "edit", row.edit...)
				require.Contains(t, p.byID("left"), row.why)
				require.Len(t, ids(t, m, "orders.dlq"), 1)
			})
		})
	}
}

// A form of one letter changes no other letter that is at its position later, and none that is shown otherwise.
func TestFormOfALetterThatIsAnotherNow(t *testing.T) {
	for _, verb := range []string{"redrive", "edit", "discard"} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *countingBackend) {
				editable(t, m)
				now := "one"
				h := change(t, m, console.Options{Redact: func(_ string, e *eventbus.Event) { e.Payload = []byte(now) }})
				p := h.letter("orders.dlq", 0)
				id := verb
				switch verb {
				case "edit":
					p = h.submit(p, "edit")
				case "discard":
					p, id = h.submit(p, "discard"), "confirm"
				}
				now = "two"
				require.Equal(t, "no dead letters match anymore", h.submit(p, id).byID("result"))
				require.Len(t, ids(t, m, "orders.dlq"), 1)
			})
		})
	}
}

// An edited event has the new fields. The fields that nobody has changed keep their bytes.
func TestEdit(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		m0 := &backend.Message{Topic: "orders.dlq", ID: "l", Key: "ann", Payload: []byte("one\r\ntwo"), Headers: backend.Headers{
			{Name: "ce-type", Value: "order.placed"},
			{Name: "keep", Value: "a  b"},
			{Name: "change", Value: "old"},
			{Name: "drop", Value: "x"},
			{Name: letter.Reason, Value: "exhausted"},
			{Name: letter.Group, Value: "billing"},
			{Name: letter.Topic, Value: "orders"},
			{Name: letter.ID, Value: "e-1"},
		}}
		second := *m0
		second.ID, second.Headers = "l2", append(backend.Headers{}, m0.Headers...)
		second.Headers.Set(letter.ID, "e-2")
		require.NoError(t, m.Publish(t.Context(), []*backend.Message{m0, &second}))
		h := change(t, m, console.Options{})
		form := h.submit(h.letter("orders.dlq", 0), "edit")
		_, fields := form.form("edit")
		require.Equal(t, "ann", fields.Get("key"))
		require.Equal(t, "change", fields.Get("name0"))
		p := h.submit(form, "edit", "type", "order.mended", "value0", "new", "name1", "", "name3", "added", "value3", "z", "payload", "one\r\ntwo")
		require.Equal(t, "1 dead letter redriven", p.byID("result"))
		got := last(t, m, "orders")
		letter.Restore(got)
		e := eventbus.EventOf(got)
		require.Equal(t, "order.mended", e.Type)
		require.Equal(t, "ann", e.Key)
		require.Equal(t, "one\r\ntwo", string(e.Payload), "an unchanged payload keeps its line ends")
		for name, want := range map[string]string{"keep": "a  b", "change": "new", "drop": "", "added": "z"} {
			require.Equal(t, want, e.Headers.Get(name), name)
		}
		require.Equal(t, []string{"e-2"}, ids(t, m, "orders.dlq"))

		form = h.submit(h.letter("orders.dlq", 0), "edit")
		p = h.submit(form, "edit", "key", "bob", "payload", `{"n": 1}`)
		require.Equal(t, "1 dead letter redriven", p.byID("result"), p.text)
		got = last(t, m, "orders")
		require.Equal(t, "bob", got.Key)
		require.Equal(t, `{"n": 1}`, string(got.Payload))
	})
}

// An edit that the bus would not publish is refused, and the letter stays.
func TestEditRefusesWrongFields(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		form := h.submit(h.letter("orders.dlq", 0), "edit")
		for name, value := range map[string]string{"name0": "eventbus-dead-reason", "name1": "a b", "name2": "ce-type", "key": strings.Repeat("k", 600)} {
			p := h.submit(form, "edit", name, value)
			require.Contains(t, p.byID("left"), "refused 1", name)
		}
		require.Len(t, ids(t, m, "orders.dlq"), 4)
	})
}

// A field that Redact hides is neither shown in a form nor lost by an edit, and a search cannot guess it.
func TestEditWithRedact(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		m0 := &backend.Message{Topic: "orders.dlq", ID: "l", Payload: []byte("card 4111"), Headers: backend.Headers{
			{Name: "token", Value: "hunter2"},
			{Name: letter.Reason, Value: "exhausted"},
			{Name: letter.Group, Value: "billing"},
			{Name: letter.Topic, Value: "orders"},
			{Name: letter.ID, Value: "e-1"},
		}}
		require.NoError(t, m.Publish(t.Context(), []*backend.Message{m0}))
		h := change(t, m, console.Options{Redact: func(_ string, e *eventbus.Event) {
			e.Payload = []byte("(hidden)")
			if e.Headers.Get("token") != "" {
				e.Headers.Set("token", "(hidden)")
			}
		}})
		ask := h.submit(h.open("letters?topic=orders.dlq&value=hunter2"), "discard")
		require.Equal(t, "0", ask.byID("found"))
		form := h.submit(h.letter("orders.dlq", 0), "edit")
		require.NotContains(t, form.text, "4111")
		h.submit(ask, "confirm")
		require.Len(t, ids(t, m, "orders.dlq"), 1, "a search cannot discard by a hidden value")
		h.submit(form, "edit", "type", "mended")
		got := last(t, m, "orders")
		require.Equal(t, "card 4111", string(got.Payload))
		require.Equal(t, "hunter2", got.Headers.Get("token"))
		require.Equal(t, "mended", got.Headers.Get("ce-type"))
	})
}
