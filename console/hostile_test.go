package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/presence"
)

// A lyingBackend lists a topic and a group of any name, as a broker may that other programs use.
type lyingBackend struct {
	*countingBackend
	name string
}

func (l lyingBackend) Topics(ctx context.Context) ([]string, error) {
	all, err := l.countingBackend.Topics(ctx)
	return append(all, l.name), err
}

func (l lyingBackend) Groups(ctx context.Context, topic string) ([]string, error) {
	if topic == l.name {
		return []string{l.name}, nil
	}
	return l.countingBackend.Groups(ctx, topic)
}

func (l lyingBackend) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	if topic == l.name {
		return backend.Stats{Lag: 1}, nil
	}
	return l.countingBackend.Stats(ctx, topic, group)
}

func (l lyingBackend) Paused(ctx context.Context, topic, group string) (backend.Pause, error) {
	if topic == l.name {
		return backend.Pause{Since: time.Now(), By: l.name, Why: l.name}, nil
	}
	return l.countingBackend.Paused(ctx, topic, group)
}

// skeleton returns the elements of a page with the names of their attributes, and the paths to
// which the page leads. Hostile data must not change it.
func skeleton(p page) (shape []string) {
	for _, e := range p.elements {
		names := []string{e.name}
		for name := range e.attrs {
			if name != "aria-current" { // the best form of a payload depends on it
				names = append(names, name)
			}
		}
		slices.Sort(names[1:])
		for _, name := range []string{"href", "src", "action"} {
			if to, ok := e.attrs[name]; ok {
				u, err := url.Parse(to)
				require.NoError(p.t, err)
				names = append(names, u.Scheme+":"+u.Host+u.Path)
			}
		}
		shape = append(shape, strings.Join(names, " "))
	}
	return shape
}

// shapes returns the skeletons of all pages about events with this text in each place.
func shapes(t *testing.T, text string) (all [][]string) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(5 * time.Minute)
		m := newCountingBackend(t)
		attach(t, m, "orders", "billing")
		require.NoError(t, m.Publish(t.Context(), []*backend.Message{
			{Topic: "orders", ID: text, Key: text, Payload: []byte("(" + text + ")"), Headers: backend.Headers{
				{Name: "h" + text, Value: text}, {Name: "ce-type", Value: text}, {Name: "ce-source", Value: text}, {Name: "ce-subject", Value: text}, {Name: "content-type", Value: text},
			}},
			{Topic: "orders.dlq", ID: text, Key: text, Payload: []byte("(" + text + ")"), Headers: backend.Headers{
				{Name: letter.Reason, Value: "r" + text},
				{Name: letter.Error, Value: text},
				{Name: letter.ErrorClass, Value: text},
				{Name: letter.Group, Value: text},
				{Name: letter.Topic, Value: text},
				{Name: letter.ID, Value: text},
				{Name: letter.Position, Value: text},
				{Name: letter.Stack, Value: "s" + strings.ReplaceAll(text, " | ", "")},
			}},
		}))
		hostileLater(t, m, text)
		v := change(t, lyingBackend{m, "n" + text}, console.Options{
			TraceURL: "https://tempo/{trace_id}",
			Redact:   func(string, *eventbus.Event) {},
			Who:      func(*http.Request) string { return text },
		})
		q := url.QueryEscape(text)
		for _, at := range []string{
			"", "?q=n" + q + "&status=" + q, "topic?name=orders", "topic?name=orders.dlq", "letters?topic=orders.dlq", "letters?topic=orders.dlq&group=x" + q,
			"topic?name=orders&id=x" + q + "&key=" + q + "&type=" + q + "&header=" + q + "&value=" + q, "topic?name=orders&from=x" + q, "topic?name=orders&since=x" + q,
			"confirm?verb=discard&topic=orders.dlq&id=x" + q + "&key=" + q + "&type=" + q + "&header=" + q + "&value=" + q, "confirm?verb=redrive&topic=orders.dlq&at=&group=x" + q,
			"confirm?verb=discard&topic=orders.dlq&kind=1&of=" + q + "&group=" + q + "&reason=r" + q + "&class=" + q + "&etype=" + q, "confirm?verb=redrive&topic=orders.dlq&rate=x" + q,
			"confirm?verb=reset&topic=orders&name=billing&to=after" + q, "confirm?verb=delete-group&topic=orders&name=x" + q, "edit?topic=orders.dlq&from=&at=x" + q, "job?id=x" + q,
			"topic?name=x%20" + q, "group?topic=orders&name=x" + q, "event?topic=orders&from=after+" + q + "x&at=x" + q, "event?topic=orders&from=&at=x" + q,
			"schedule?topic=orders", "lifecycle?topic=orders", "lifecycle?topic=orders&group=billing", "lifecycle?topic=orders&group=nobody" + q, "group?topic=orders&name=billing", "group?topic=parts&name=g", "processes",
		} {
			_, body := v.answer(at)
			p := parse(t, body)
			all = append(all, skeleton(p))
			if p.has("confirm") && strings.Contains(at, "discard") {
				all = append(all, skeleton(v.submit(v.open(at), "confirm")), skeleton(v.open("jobs")), skeleton(v.open("letters?topic=orders.dlq")))
			}
			for _, a := range p.all("a") {
				if strings.HasPrefix(a.attrs["href"], "event?") {
					if strings.Contains(a.attrs["href"], "topic=orders.dlq") {
						form := skeleton(v.open(strings.Replace(a.attrs["href"], "event?", "edit?", 1)))
						all = append(all, slices.DeleteFunc(form, func(e string) bool { // only a text has a field
							return e == "label" || e == "p class" || strings.HasPrefix(e, "textarea")
						}))
					}
					for _, as := range []string{"&as=text", "&as=hex", "&as=cbor", "&as=" + q} {
						_, body := v.answer(a.attrs["href"] + as)
						all = append(all, skeleton(parse(t, body)))
					}
				}
			}
		}
	})
	return all
}

// hostileLater stores records of schedules, lifecycle records and notes of members, with this text in
// each place.
func hostileLater(t *testing.T, m *countingBackend, text string) {
	record, err := json.Marshal(map[string]any{
		"state": text, "group": text, "id": text, "type": text, "reason": text, "error": text, "error_class": text, "attempt": 1, "time": time.Now(),
	})
	require.NoError(t, err)
	retried, err := json.Marshal(map[string]any{"state": "retried", "group": "billing", "id": "x" + text, "type": text, "error": text, "error_class": text, "time": time.Now()})
	require.NoError(t, err)
	plan, err := json.Marshal(map[string]any{"cron": text, "zone": text, "missed": text, "print": text})
	require.NoError(t, err)
	member, err := json.Marshal(map[string]any{"member": "x" + text, "name": "x" + text, "group": "g", "owned": text})
	require.NoError(t, err)
	subscription := func(value string) map[string]any {
		return map[string]any{"topic": "orders", "group": "billing", "state": text, "error": text, "settings": map[string]string{"s" + text: value, "agreed": text}}
	}
	process := func(id string, subscriptions ...map[string]any) []byte {
		note, err := json.Marshal(map[string]any{
			"id": id, "name": "x" + text, "service": text, "version": "v" + text, "host": text, "started": time.Now(), "written": time.Now(), "every": time.Hour, "subscriptions": subscriptions,
		})
		require.NoError(t, err)
		return note
	}
	attach(t, m, partition.Topic("parts", 0), "g")
	headers := func(kind string, more ...backend.Header) backend.Headers {
		return append(backend.Headers{{Name: "eventbus-later", Value: kind}, {Name: "ce-type", Value: text}}, more...)
	}
	const log = "orders.later"
	require.NoError(t, m.Publish(t.Context(), []*backend.Message{
		{Topic: log, ID: "x" + text, Key: text, Payload: []byte("(" + text + ")"), Headers: headers("event", backend.Header{Name: "eventbus-later-due", Value: text})},
		{Topic: log, ID: "y" + text, Key: text, Headers: headers("entry", backend.Header{Name: "eventbus-later-plan", Value: string(plan)})},
		{Topic: log, ID: text, Headers: headers(text)},
		{Topic: log, ID: text, Payload: []byte(text), Headers: headers("move")},
		{Topic: log, ID: text, Payload: []byte(text), Headers: headers("cancel")},
		{Topic: log, ID: text, Payload: []byte(text), Headers: headers("forget")},
		{Topic: "orders.lifecycle", Payload: record, Headers: backend.Headers{{Name: "ce-type", Value: lifecycle.Type}, {Name: "ce-source", Value: text}}},
		{Topic: "orders.lifecycle", Payload: []byte("(" + text), Headers: backend.Headers{{Name: "ce-type", Value: lifecycle.Type}, {Name: "ce-source", Value: text}}},
		{Topic: "orders.lifecycle", Payload: retried, Headers: backend.Headers{{Name: "ce-type", Value: lifecycle.Type}}},
		{Topic: "parts.partitions.members", Payload: member},
		{Topic: presence.Topic, Payload: process("x"+text, subscription("x"+text), subscription("y"+text), map[string]any{"topic": text, "group": text, "state": text}), Headers: backend.Headers{{Name: "ce-type", Value: presence.Type}}},
		{Topic: "orders", ID: "traced", Headers: backend.Headers{{Name: "traceparent", Value: "00-" + text + "-00f067aa0ba902b7-01"}}},
	}))
}

// Names, payloads, headers and the query never become markup, and no page leads elsewhere.
func FuzzHostile(f *testing.F) {
	for _, text := range []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "' onfocus=alert(1) autofocus '", "javascript:alert(1)", "</pre></td></table><form action=//evil>",
		"<!--", "]]>", "&lt;b&gt;", "{{.}}", "\x00", "\xff\xfe", "\u202egpj", "\u2028", "\ufffe\uffff", "data:text/html,<b>", "//evil.example/", "..", "../../", "a b&c=d#e?f", "%00%0a%3cb%3e", "\r\n\r\nHTTP/1.1 200 OK",
		strings.Repeat("<b>", 60), strings.Repeat(`"><img src=x>`, 25),
	} {
		f.Add(text)
	}
	plain := map[int][][]string{} // the pages about harmless text, by its length
	f.Fuzz(func(t *testing.T, text string) {
		n := 1 + len(text)
		if n > 400 {
			t.Skip("the query has a bound")
		}
		if plain[n] == nil {
			plain[n] = shapes(t, strings.Repeat("p", n))
		}
		got := shapes(t, "x"+text)
		require.Len(t, got, len(plain[n]))
		for i, want := range plain[n] {
			require.Equal(t, want, got[i], "page %d", i)
		}
	})
}
