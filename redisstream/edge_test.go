package redisstream_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/faultproxy"
	"github.com/seed41896749/eventbus/internal/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// The first look at a server that hangs is one caller's: the others wait no
// longer than their own contexts.
func TestCheckThatHangsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	thaw := proxy.Freeze()
	first := make(chan error, 1)
	go func() { first <- b.Publish(within(t, 4*time.Second), batch("a", 1)) }()
	pause(300 * time.Millisecond)
	start := time.Now()
	err := b.Publish(within(t, 200*time.Millisecond), batch("b", 1))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Less(t, time.Since(start), time.Second)
	_, err = b.Attach(within(t, 200*time.Millisecond), config())
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Less(t, time.Since(start), 2*time.Second)
	thaw()
	require.NoError(t, <-first)
}

// A message is certainly not stored only if it is not: also where the script that
// stores it fails at the next one.
func TestScriptThatFailsHalfwaySaysWhatIsStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "unmarked", "secret", "~*", "+@all", "-get")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "unmarked", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := open(t, client, redisstream.Options{})
	ms := batch("a", 3)
	once(ms[1:2])
	err := b.Publish(t.Context(), ms)
	require.NoError(t, backend.ErrorAt(err, 0))
	require.ErrorIs(t, backend.ErrorAt(err, 1), backend.ErrDenied)
	require.ErrorIs(t, backend.ErrorAt(err, 2), backend.ErrDenied)
	require.Len(t, stored(t, b), 1)
}
