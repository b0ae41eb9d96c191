package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

// onEach calls test with a backend of each kind.
func onEach(t *testing.T, test func(t *testing.T, b backend.Backend)) {
	for name, open := range map[string]func(t *testing.T) (backend.Driver, string){
		"memory": func(*testing.T) (backend.Driver, string) { return inmemory.Driver{}, "mem:" },
		"redis":  func(t *testing.T) (backend.Driver, string) { return redisstream.Driver{}, redistest.Start(t).URL() },
		"nats":   func(t *testing.T) (backend.Driver, string) { return nats.Driver{}, natstest.Start(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			driver, text := open(t)
			u, err := url.Parse(text)
			require.NoError(t, err)
			b, err := driver.Open(t.Context(), u)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			test(t, b)
		})
	}
}

// A lasting is a backend that stays open when its bus is shut down.
type lasting struct{ backend.Backend }

func (lasting) Close() error              { return nil }
func (l lasting) Unwrap() backend.Backend { return l.Backend }

// watched returns a bus on b with a started recorder. stop shuts both down.
func watched(t *testing.T, b backend.Backend, o lifecycle.Options) (bus *eventbus.Bus, r *lifecycle.Recorder, stop func()) {
	t.Helper()
	r = lifecycle.New(o)
	bus, err := eventbus.New(lasting{b}, eventbus.Options{Observer: r.Observer()})
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), b))
	return bus, r, func() {
		t.Helper()
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, bus.Shutdown(ctx))
		require.NoError(t, r.Close(ctx))
	}
}

// records returns the records of topic.
func records(t *testing.T, b backend.Backend, topic string) (rs []lifecycle.Record) {
	t.Helper()
	for from := ""; ; {
		ms, err := backend.Read(t.Context(), b, lifecycle.Topic(topic), backend.StartAfter(from), 1000)
		if errors.Is(err, backend.ErrGone) || err == nil && len(ms) == 0 {
			return rs
		}
		require.NoError(t, err)
		for i := range ms {
			r, ok, err := lifecycle.Decode(&ms[i])
			require.NoError(t, err)
			require.True(t, ok)
			rs = append(rs, r)
		}
		from = ms[len(ms)-1].Position
	}
}

// line returns the parts of r that do not depend on the clock.
func line(r lifecycle.Record) string {
	return fmt.Sprintf("%s %s #%d %s%s", r.State, r.ID, r.Attempt, r.Reason, r.Error)
}

func lines(rs []lifecycle.Record) (ls []string) {
	for _, r := range rs {
		ls = append(ls, line(r))
	}
	return ls
}

// tell makes n steps of events of topic.
func tell(o observer.Observer, topic string, n int) {
	for i := range n {
		o.Started(observer.Started{About: observer.About{Topic: topic, Group: "g", ID: fmt.Sprint(i), Attempt: 1}})
	}
}

var soon = 30 * time.Second
