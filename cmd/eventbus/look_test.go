package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/survey"
)

func TestPing(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		require.Regexp(t, `^answered in \d.*s\n$`, b.ok("", "ping").stdout)
		require.Contains(t, b.ok("", "ping", "--json").stdout, `"seconds": `)
		require.Contains(t, b.run("", "ping", "now").stderr, `ping: unexpected argument "now"`)
	})
}

func TestTopicsAndGroups(t *testing.T) {
	b := newBench(t)
	require.Empty(t, b.ok("", "topics").stdout)
	require.Empty(t, b.ok("", "groups").stdout)
	require.Equal(t, "[]\n", b.ok("", "groups", "--json").stdout)
	for _, group := range []string{"audit", "billing"} { // an event settled by all groups is forgotten
		b.ok("", "sub", "orders", "--group", group, "--idle-exit", "1ms")
	}
	b.ok(numbered(5), "pub", "orders")
	b.ok("", "sub", "orders", "--group", "audit", "--count", "2")
	b.failed(1, "sub", "orders", "--group", "billing", "--count", "3", "--exec", `[ $EVENTBUS_ID != e-1 ] || exit 65`)
	b.ok(numbered(1), "pub", "logs")

	require.Equal(t, ""+
		"TOPIC       GROUPS  DEPTH\n"+
		"logs        0       1\n"+
		"orders      2       3\n"+
		"orders.dlq  0       1\n", b.ok("", "topics").stdout)
	require.JSONEq(t, `[{"topic":"logs","groups":0,"depth":1},{"topic":"orders","groups":2,"depth":3},
		{"topic":"orders.dlq","groups":0,"depth":1}]`, b.ok("", "topics", "--json").stdout)

	require.Equal(t, ""+
		"TOPIC   GROUP    DEPTH  LAG  IN FLIGHT  DELAYED  OLDEST  DEAD  MEMBERS\n"+
		"orders  audit    3      3    0          0        0s      0     0\n"+
		"orders  billing  3      1    0          0        0s      1     0\n",
		strings.ReplaceAll(b.ok("", "groups").stdout, "1s", "0s"))
	rows := b.groups("logs", "orders")
	require.Len(t, rows, 2)
	require.WithinDuration(t, time.Now(), rows[0].Oldest, time.Minute)

	r := b.run("", "groups", "nowhere")
	require.Equal(t, 1, r.code)
	require.Equal(t, "eventbus: groups: there is no topic \"nowhere\"\n", r.stderr)
}

func TestAge(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1s", -time.Second: "0s", 90 * time.Minute: "1h30m0s", 100 * time.Hour: "4d4h",
	} {
		require.Equal(t, want, age(now.Add(-d), now))
	}
	require.Equal(t, "-", age(time.Time{}, now))
	var out strings.Builder
	require.NoError(t, writeGroups(&out, []survey.Group{{Topic: "a", Group: "g", Lag: backend.Unknown}}, now))
	require.Contains(t, out.String(), "unknown")
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
