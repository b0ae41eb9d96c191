package console_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/console"
)

// An event with a valid traceparent has a link to its trace. No other header makes a link.
func TestTraceLink(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent := "00-" + id + "-00f067aa0ba902b7-01"
	for name, row := range map[string]struct {
		header, value string
		want          bool
	}{
		"a parent":           {"traceparent", parent, true},
		"of CloudEvents":     {"ce-traceparent", parent, true},
		"of a later version": {"traceparent", "01-" + id + "-00f067aa0ba902b7-01-more", true},
		"no version":         {"traceparent", "ff-" + id + "-00f067aa0ba902b7-01", false},
		"only zeros":         {"traceparent", "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", false},
		"upper case":         {"traceparent", strings.ToUpper(parent), false},
		"too short":          {"traceparent", "00-" + id[1:] + "-00f067aa0ba902b7-01", false},
		"a text before":      {"traceparent", "x " + parent, false},
		"an address":         {"traceparent", "00-//evil.example/-00f067aa0ba902b7-01", false},
		"another header":     {"trace", parent, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *countingBackend) {
				store(t, m, "orders", eventbus.Event{ID: "e-1", Headers: eventbus.Headers{{Name: row.header, Value: row.value}}})
				for address, want := range map[string]string{"": "", "https://tempo/trace/{trace_id}?o={trace_id}": "https://tempo/trace/" + id + "?o=" + id} {
					v := visit(t, m, console.Options{TraceURL: address})
					list := v.page("topic?name=orders")
					p := v.page(list.all("a")[linkIndex(list, "event?")].attrs["href"])
					if row.want {
						require.Equal(t, want, p.link(id))
						continue
					}
					for _, a := range p.all("a") {
						require.NotContains(t, a.attrs["href"], "tempo")
					}
				}
			})
		})
	}
}

// The redacted header makes no link.
func TestTraceLinkIsRedacted(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		store(t, m, "orders", eventbus.Event{ID: "e-1", Headers: eventbus.Headers{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}})
		v := visit(t, m, console.Options{TraceURL: "https://tempo/{trace_id}", Redact: func(_ string, e *eventbus.Event) { e.Headers = nil }})
		list := v.page("topic?name=orders")
		_, body := v.answer(list.all("a")[linkIndex(list, "event?")].attrs["href"])
		require.NotContains(t, body, "tempo")
	})
}

func TestTraceURLIsChecked(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://tempo/{trace_id}":                      "",
		"http://user@[::1]:16686/trace?id={trace_id}#x": "",
		"javascript:alert('{trace_id}')":                "does not begin with http",
		"//tempo/{trace_id}":                            "does not begin with http",
		"tempo/{trace_id}":                              "does not begin with http",
		"https:///{trace_id}":                           "has no host",
		"https://tempo/":                                "does not have {trace_id}",
		"https://{trace_id}.example/":                   "has {trace_id} in its host",
		"https://{trace_id}@tempo/{trace_id}":           "has {trace_id} in its host",
		"https://tempo/\x00{trace_id}":                  "is not a URL",
	} {
		err := console.Options{TraceURL: address}.Check()
		if want == "" {
			require.NoError(t, err, address)
			continue
		}
		require.ErrorContains(t, err, "console.Options.TraceURL "+want, address)
		require.PanicsWithError(t, err.Error(), func() { console.Handler(nil, console.Options{TraceURL: address}) })
	}
}
