package inmemory_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

func TestDriver(t *testing.T) {
	for raw, want := range map[string]string{
		"mem:": "",
		"mem:?max_messages=2&max_bytes=1000&once_window=90s": "",
		"mem:?max_bytes=64MiB":                               "",
		"mem:?max_mesages=2":                                 `unknown parameter "max_mesages"; did you mean "max_messages"?`,
		"mem:?window=2s":                                     `did you mean "once_window"?`,
		"mem:?max_bytes=1&max_bytes=2":                       `parameter "max_bytes": is given 2 times`,
		"mem:?max_bytes=lots":                                `parameter "max_bytes": `,
		"mem:?once_window=0":                                 `parameter "once_window": `,
		"mem:?max_messages=-1":                               `parameter "max_messages": must be positive`,
		"mem://u:secret@host/?a=b":                           `nothing else`,
		"mem:?max_messages=1;max_bytes=secret":               `malformed`,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		b, err := inmemory.Driver{}.Open(t.Context(), u)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", raw, err)
				continue
			}
			b.Close()
		} else if err == nil || !strings.HasPrefix(err.Error(), "inmemory: open: ") ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want … %s …", raw, err, want)
		}
	}
}

// Impossible calls fail with the error class that other backends return.
func TestRefused(t *testing.T) {
	b := open(t, inmemory.Options{})
	src := attach(t, b, "billing")
	publish(t, b, "1")
	d := receive(t, src, 1)[0]
	for _, c := range []backend.Config{
		{Lease: 0},
		{Lease: -time.Second},
		{Lease: lease, Start: "middle"},
		{Lease: lease, Start: backend.StartAfter("middle")},
		{Lease: lease, Start: backend.StartAfter(d.Position[:15] + "2")},
	} {
		c.Topic, c.Group = "orders", "other"
		_, err := b.Attach(t.Context(), c)
		require.ErrorIs(t, err, backend.ErrRefused, "%+v", c)
	}
	_, err := b.Read(t.Context(), "orders", "middle", 1)
	require.ErrorIs(t, err, backend.ErrRefused)
	require.ErrorIs(t, b.ResetGroup(t.Context(), "orders", "billing", "middle"), backend.ErrRefused)

	other := attach(t, b, "other")
	for name, err := range map[string]error{
		"ack":    other.Ack(t.Context(), []*backend.Delivery{&d}),
		"delay":  other.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: d}}),
		"extend": other.(backend.Extender).Extend(t.Context(), []*backend.Delivery{&d}),
	} {
		require.ErrorIs(t, err, backend.ErrRefused, "%s a delivery of another group", name)
		require.ErrorContains(t, err, "inmemory: "+name+" orders/other: ")
	}
}
