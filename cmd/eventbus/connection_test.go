package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

func TestPing(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		require.Regexp(t, `^answered in \d.*s\n$`, b.ok("", "ping").stdout)
		require.Contains(t, b.ok("", "ping", "--json").stdout, `"seconds": `)
		require.Contains(t, b.run("", "ping", "now").stderr, `ping: unexpected argument "now"`)
	})
}

// silent is a broker that is down.
type silent struct {
	backend.Backend
	err error // returned at once; nil: calls hang
}

func (s silent) answer(ctx context.Context) error {
	if s.err == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.err
}

func (s silent) Ping(ctx context.Context) error { return s.answer(ctx) }

func (s silent) Limits() backend.Limits { return backend.LimitsOf(s.Backend) }

func TestABrokerThatIsDown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"it refuses", errors.Join(backend.ErrUnavailable, errors.New("connection refused")), "unavailable connection refused"},
		{"it hangs", nil, "the backend does not answer within 100ms: context deadline exceeded"},
	} {
		for _, args := range [][]string{
			{"ping"},
			{"topics"},
			{"groups"},
			{"tail", "a"},
			{"tail", "a", "--follow"},
			{"pub", "a"},
			{"pub", "a", "--data", "x"},
			{"sub", "a", "--group", "g"},
			{"demo"},
		} {
			t.Run(row.name+" "+strings.Join(args, " "), func(t *testing.T) {
				b := newBench(t)
				b.b = silent{Backend: b.mem, err: row.err}
				start := time.Now()
				r := b.run(numbered(3), append(args, "--connect-timeout", "100ms")...)
				require.Less(t, time.Since(start), 5*time.Second)
				require.Equal(t, 1, r.code)
				require.Empty(t, r.stdout)
				require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
				require.True(t, strings.HasPrefix(r.stderr, "eventbus: "+args[0]+": "), r.stderr)
				require.Contains(t, r.stderr, row.want)
			})
		}
	}
}

func TestTheBackendComesFromTheEnvironment(t *testing.T) {
	drivers := []backend.Driver{sharedDriver{inmemory.New(inmemory.Options{})}}
	for _, row := range []struct{ env, want string }{
		{"", "eventbus: ping: no backend: give --url or set EVENTBUS_URL\n"},
		{"nats://u:secret@h", "add nats.Driver{}"},
		{"test:", ""},
	} {
		t.Setenv(urlVariable, row.env)
		var out, errs safeBuffer
		code := run(t.Context(), drivers, []string{"ping"}, nil, &out, &errs)
		require.Equal(t, row.want == "", code == 0)
		require.Contains(t, errs.String(), row.want)
		require.NotContains(t, errs.String(), "secret")
	}
	t.Setenv(urlVariable, "nats://u:secret@h")
	var out, errs safeBuffer
	require.Zero(t, run(t.Context(), drivers, []string{"sub", "--help"}, nil, &out, &errs))
	require.NotContains(t, out.String(), "secret")
}
