package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that fails shows at once: the first failed attempt is a line of the log, and the
// account has the last error of each event that waits. Many failures are few lines.
func TestSubShowsFailures(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.ok(strings.Repeat(`{"data":1}`+"\n", 50), "pub", "orders")
		s := b.start("sub", "orders", "--group", "g", "--backoff", "1h", "--max-backoff", "2h", "--exec", "echo no stock >&2; exit 1")
		await(t, "each was tried", func() bool { return strings.Count("\n"+s.errs.String(), "\nno stock") == 50 })
		r := s.end()
		require.Regexp(t, `time=\S+ level=WARN msg="eventbus: handler failed" topic=orders group=g id=\S+ position=\S+ attempt=1 max_attempts=12 `+
			`next_attempt_in=\S+ error="exit status 1: no stock" error_class=\*exec.ExitError\n`, r.stderr)
		require.Equal(t, 2, strings.Count(r.stderr, "handler failed"))
		require.Contains(t, r.stderr, " repeated=49 first=")
		require.Regexp(t, `handled 0, retried 50, dead-lettered 0, discarded 0, failing 50, the last \S+: exit status 1: no stock\n`, r.account())
	})
}
