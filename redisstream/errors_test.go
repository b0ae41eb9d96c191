package redisstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

var kinds = []error{
	backend.ErrUnavailable, backend.ErrUnknownOutcome, backend.ErrGone, backend.ErrDenied, backend.ErrFull, backend.ErrTooLarge,
	backend.ErrRefused, backend.ErrLeaseLost, backend.ErrClosed,
}

// requireKind requires that an error is of one class and no other.
func requireKind(t *testing.T, want, err error) {
	t.Helper()
	require.ErrorIs(t, err, want)
	for _, k := range kinds {
		require.Equal(t, errors.Is(want, k), errors.Is(err, k), "%v: %v", k, err)
	}
}

func TestClassesOfReplies(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"NOGROUP No such key 'a' or consumer group 'b' in XREADGROUP with GROUP option": backend.ErrGone,
		"UNBLOCKED the stream key no longer exists":                                     backend.ErrGone,
		"ERR no such key": backend.ErrGone,
		"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.": backend.ErrGone,
		"FULL the stream has 5 entries":                                                                    backend.ErrFull,
		"OOM command not allowed when used memory > 'maxmemory'.":                                          backend.ErrFull,
		"NOPERM this user has no permissions to run the 'xadd' command":                                    backend.ErrDenied,
		"NOPERM this user has no permissions to access one of the keys used as arguments":                  backend.ErrDenied,
		"NOAUTH Authentication required.":                                                                  backend.ErrDenied,
		"WRONGPASS invalid username-password pair or user is disabled.":                                    backend.ErrDenied,
		"ERR invalid password":                                                                             backend.ErrDenied,
		"LOADING Redis is loading the dataset in memory":                                                   backend.ErrUnavailable,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":           backend.ErrUnavailable,
		"READONLY You can't write against a read only replica.":                                            backend.ErrUnavailable,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk.": backend.ErrUnavailable,
		"CLUSTERDOWN Hash slot not served":                                                                 backend.ErrUnavailable,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                 backend.ErrUnavailable,
		"NOREPLICAS Not enough good replicas to write.":                                                    backend.ErrUnavailable,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                          backend.ErrUnavailable,
		"MOVED 3999 127.0.0.1:6381":                                                                        backend.ErrUnavailable,
		"ASK 3999 127.0.0.1:6381":                                                                          backend.ErrUnavailable,
		"ERR max number of clients reached":                                                                backend.ErrUnavailable,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                backend.ErrRefused,
		"BUSYGROUP Consumer Group name already exists":                                                     backend.ErrRefused,
		"BUSYKEY Target key name already exists.":                                                          backend.ErrRefused,
		"BEYOND the end of the stream, 0-0":                                                                backend.ErrRefused,
		"CROSSSLOT Keys in request don't hash to the same slot":                                            backend.ErrRefused,
		"ERR unknown command 'xadd'":                                                                       backend.ErrRefused,
		"ERR value is not an integer or out of range":                                                      backend.ErrRefused,
		"EXECABORT Transaction discarded because of previous errors.":                                      backend.ErrRefused,
		"": backend.ErrRefused,

		"ERR The user executing the script can't run this command or subcommand script: 0123, on @user_script:4.":                                                                            backend.ErrDenied,
		"ERR ACL failure in script: User app has no permissions to run the 'xgroup|destroy' command":                                                                                         backend.ErrDenied,
		"ERR Error running script (call to f_0123): @user_script:4: @user_script: 4: The user executing the script can't access at least one of the keys mentioned in the command arguments": backend.ErrDenied,

		// Redis 6.2 adds text in front of the error of a script, and Redis 7 after it.
		"ERR Error running script (call to f_0123): @user_script:12: -NOGROUP No such key 'a' or consumer group 'b'":           backend.ErrGone,
		"ERR Error running script (call to f_0123): @user_script:12: @user_script: 12: -ERR no such key":                       backend.ErrGone,
		"ERR Error running script (call to f_0123): @user_script:12: -OOM command not allowed when used memory > 'maxmemory'.": backend.ErrFull,
		"ERR Error running script (call to f_0123): @user_script:4: -NOPERM this user has no permissions":                      backend.ErrDenied,
		"ERR Error running script (call to f_0123): @user_script:4: -READONLY You can't write against a read only replica":     backend.ErrUnavailable,
		"ERR Error running script (call to f_0123): @user_script:4: -MISCONF Redis is configured to save":                      backend.ErrUnavailable,
		"ERR Error running script (call to f_0123): @user_script:4: -NOREPLICAS Not enough good replicas":                      backend.ErrUnavailable,
		"ERR Error running script (call to f_0123): @user_script:4: -WRONGTYPE Operation against a key":                        backend.ErrRefused,
		"ERR Error running script (call to f_0123): @user_script:4: @user_script: 4: attempt to index a nil value":             backend.ErrRefused,
		"ERR Error compiling script (new function): user_script:1: unexpected symbol":                                          backend.ErrRefused,
		// redis.pcall of Redis 6.2 returns these.
		"@user_script: 14: -READONLY You can't write against a read only replica.":                                                             backend.ErrUnavailable,
		"@user_script: 14: -OOM command not allowed when used memory > 'maxmemory'.":                                                           backend.ErrFull,
		"@user_script: 14: -NOPERM this user has no permissions to run the 'xadd' command":                                                     backend.ErrDenied,
		"@user_script: 3: Unknown Redis command called from Lua script":                                                                        backend.ErrRefused,
		"ERR Error running script (call to f_0123): @user_script:4: @user_script: 4: -READONLY You can't write against a read only replica.":   backend.ErrUnavailable,
		"ERR Error running script (call to f_0123): @user_script:4: @user_script: 4: -OOM command not allowed when used memory > 'maxmemory'.": backend.ErrFull,
		// Redis 7 and later.
		"READONLY You can't write against a read only replica. script: 0123, on @user_script:4.":                        backend.ErrUnavailable,
		"MISCONF Errors writing to the AOF file: No space left script: 0123, on @user_script:4.":                        backend.ErrUnavailable,
		"NOREPLICAS Not enough good replicas to write. script: 0123, on @user_script:4.":                                backend.ErrUnavailable,
		"NOPERM User app has no permissions to run the 'xadd' command script: 0123, on @user_script:4.":                 backend.ErrDenied,
		"ERR ACL failure in script: User app has no permissions to access the 'a' key script: 0123, on @user_script:4.": backend.ErrDenied,
		"NOGROUP No such key 'a' script: 0123, on @user_script:4.":                                                      backend.ErrGone,
		"OOM command not allowed when used memory > 'maxmemory'. script: 0123, on @user_script:4.":                      backend.ErrFull,
	} {
		for _, sent := range []bool{true, false} {
			err := classify(t.Context(), serverError(text), sent)
			requireKind(t, want, err)
			require.ErrorContains(t, err, stripScriptInfo(text))
		}
	}
	// By the prefix READONLY go-redis recognizes a server that has become a replica.
	for _, text := range []string{
		"READONLY You can't write. script: 0123, on @user_script:4.", "@user_script: 14: -READONLY You can't write.",
		"ERR Error running script (call to f_0123): @user_script:14: @user_script: 14: -READONLY You can't write.",
	} {
		require.True(t, redis.IsReadOnlyError(serverError(text)), text)
	}
	require.Equal(t, "NOGROUP no such key", stripScriptInfo("NOGROUP no such key. script: 0123, on @user_script:4."))
}

func TestClassesOfBrokenConnections(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	read := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, row := range []struct {
		err  error
		sent bool
		want error
	}{
		{dial, false, backend.ErrUnavailable},
		{dial, true, backend.ErrUnavailable}, // to a server named by MOVED
		{fmt.Errorf("redis: %w", dial), true, backend.ErrUnavailable},
		{read, true, backend.ErrUnknownOutcome},
		{read, false, backend.ErrUnavailable},
		{io.EOF, true, backend.ErrUnknownOutcome},
		{io.EOF, false, backend.ErrUnavailable},
		{io.ErrUnexpectedEOF, true, backend.ErrUnknownOutcome},
		{os.ErrDeadlineExceeded, true, backend.ErrUnknownOutcome},
		{os.ErrDeadlineExceeded, false, backend.ErrUnavailable},
		{redis.ErrPoolTimeout, true, backend.ErrUnavailable},
		{redis.ErrPoolExhausted, true, backend.ErrUnavailable},
		{redis.ErrClosed, false, backend.ErrUnavailable},
		{errors.New("redis: invalid reply"), true, backend.ErrUnknownOutcome},
		{redis.Nil, true, backend.ErrUnknownOutcome}, // no answer of a server to a raw command
		{context.Canceled, false, backend.ErrUnavailable},
		{context.Canceled, true, backend.ErrUnknownOutcome},
	} {
		err := classify(t.Context(), row.err, row.sent)
		requireKind(t, row.want, err)
		require.ErrorIs(t, err, row.err)
		err = classify(ended, row.err, row.sent)
		requireKind(t, row.want, err)
		require.ErrorIs(t, err, context.Canceled, "the end of the context stays visible")
	}
	for _, known := range []error{backend.ErrClosed, backend.ErrUnknownOutcome, backend.ErrUnavailable, backend.ErrTooLarge, backend.ErrRefused, backend.ErrGone} {
		err := fmt.Errorf("x: %w", known)
		require.Equal(t, err, classify(ended, err, true), "what has a class keeps it")
	}
}

func TestVersionsAreCompared(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"6.0.16": true, "5.0.3": true, "6.1.99": true, "4": false, "6.2.0": false, "6.2.16": false, "6.10.1": false, "7.0.15": false,
		"8.2": false, "10.0.0": false, "255.255.255": false, "": false, "unstable": false, "6.x": false,
	} {
		require.Equal(t, want, olderThan(version, 6, 2), version)
	}
}

// Versions with a known danger are findings; only ones that are too old are refused.
func TestFindingsOfVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][]backend.Severity{
		"6.0.16": {backend.SeverityError}, "6.2.0": nil, "7.0.0": {backend.SeverityWarning}, "7.0.4": {backend.SeverityWarning}, "7.0.5": nil, "7.0.15": nil, "8.2.1": nil, "": nil,
	} {
		var got []backend.Severity
		for _, f := range settingsFindings(map[string]map[string]string{"Server": {"redis_version": version}}) {
			require.Equal(t, "redis-version", f.Code)
			got = append(got, f.Severity)
		}
		require.Equal(t, want, got, version)
	}
}
