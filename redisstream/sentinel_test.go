package redisstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// F07: a bus whose master is killed loses no event that it reported as stored. A failed
// event is tried again and in the end becomes a dead letter. Ready tells the truth.
func TestBusOutlivesItsMaster(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	raw := fmt.Sprintf("redis+sentinel://%s/%s?addr=%s", sentinel.SentinelAddrs()[0], sentinel.MasterName(), sentinel.SentinelAddrs()[1])
	u, err := url.Parse(raw)
	require.NoError(t, err)
	b, err := redisstream.Open(t.Context(), u)
	require.NoError(t, err)
	bus := eventbustest.On(t, b, eventbus.Options{Dedup: true, Observer: observer.Observer{Failed: func(observer.Failed) {}}})
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) })

	var mu sync.Mutex
	handled, buried := map[string]int{}, map[string]bool{}
	o := eventbus.SubscribeOptions{Group: workers, Concurrency: 8, Lease: lease, Retry: eventbus.Retry{MaxAttempts: 3, Initial: 50 * time.Millisecond}}
	_, err = bus.Subscribe(t.Context(), topic, o, func(_ context.Context, d *eventbus.Delivery) error {
		if poison(d.ID) {
			return errors.New("never")
		}
		if len(d.ID)%3 == 0 && d.Attempt == 1 {
			return errors.New("now and then")
		}
		mu.Lock()
		defer mu.Unlock()
		handled[d.ID]++
		return nil
	})
	require.NoError(t, err)
	_, err = bus.Subscribe(t.Context(), topic+".dlq", eventbus.SubscribeOptions{Group: workers, Lease: lease, DeadLetter: eventbus.DiscardDeadLetters},
		func(_ context.Context, d *eventbus.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			buried[string(d.Payload)] = true
			return nil
		})
	require.NoError(t, err)
	require.NoError(t, bus.Ready(t.Context()))

	// Messages that the replica has not received are lost, as documented, so the test waits for
	// the replica.
	inStep := func() {
		conn := sentinel.Master().Client(t).Conn()
		defer conn.Close()
		require.NoError(t, conn.Set(t.Context(), "written", "x", 0).Err())
		require.Equal(t, int64(1), conn.Wait(t.Context(), 1, 20*time.Second).Val(), "the replica has received it")
	}
	inStep()
	end := make(chan struct{})
	stored := map[string]bool{}
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", p, n)
				err := bus.Publish(within(t, 20*time.Second), topic, &eventbus.Event{ID: id, Payload: []byte(id)})
				mu.Lock()
				if err == nil {
					stored[id] = true
				}
				mu.Unlock()
				pause(5 * time.Millisecond)
			}
		})
	}
	pause(500 * time.Millisecond)
	inStep()
	sentinel.KillMaster()
	eventually(t, "Ready is false", func() bool { return bus.Ready(within(t, time.Second)) != nil })
	eventually(t, "Ready is true again", func() bool { return bus.Ready(within(t, time.Second)) == nil })
	pause(500 * time.Millisecond)
	close(end)
	publishers.Wait()
	missing := func() (ids []string) {
		mu.Lock()
		defer mu.Unlock()
		for id := range stored {
			if poison(id) && !buried[id] || !poison(id) && handled[id] == 0 {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for give := time.Now().Add(time.Minute); len(missing()) > 0 && time.Now().Before(give); {
		pause(20 * time.Millisecond)
	}
	for _, name := range []string{topic, topic + ".dlq"} {
		stats, err := b.Stats(t.Context(), name, workers)
		t.Logf("%s: %+v %v", name, stats, err)
	}
	require.Empty(t, missing(), "everything stored is handled or buried")
	t.Logf("%d stored, %d handled, %d buried", len(stored), len(handled), len(buried))
	require.NotEmpty(t, buried)
}

func poison(id string) bool { return id[len(id)-1] == '7' }

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 20*time.Millisecond, what)
}

// A master that was replaced may still be reachable, and may not know that it was
// replaced. The backend leaves it at once. Later messages are stored by the new master,
// and nothing more is written to the old one. Only messages that the old one confirmed
// before may be lost.
func TestReplacedMasterIsLeft(t *testing.T) {
	t.Parallel()
	for name, used := range map[string]bool{"new client": false, "used client": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sentinel := redistest.StartSentinel(t)
			client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.MasterName(), SentinelAddrs: sentinel.SentinelAddrs()})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			if used {
				require.NoError(t, client.Ping(t.Context()).Err())
			}
			leavesReplacedMaster(t, sentinel, client)
		})
	}
}

// A connection that is dialed while the master is replaced may lead to the old one. It is not
// used for a command.
func TestMasterIsReplacedDuringADial(t *testing.T) {
	t.Parallel()
	dialing, goOn := make(chan struct{}, 1), make(chan struct{})
	client := redis.NewClient(&redis.Options{
		Addr: redistest.Start(t).Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case dialing <- struct{}{}:
			default:
			}
			<-goOn
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := open(t, client, redisstream.Options{})
	ended := make(chan error, 1)
	go func() { ended <- b.Ping(t.Context()) }()
	<-dialing
	b.ReplaceMaster()
	close(goOn)
	require.ErrorIs(t, <-ended, backend.ErrUnavailable)
	require.NoError(t, b.Ping(t.Context()))
}

// A master may accept connections and be silent. Publish then ends soon after its context,
// even if the backend has no connection yet that tells it of a new master.
func TestSilentMasterDoesNotHoldACall(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	master := sentinel.Master().Addr()
	proxy := faultproxy.New(t, master, faultproxy.RESP)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: sentinel.MasterName(), SentinelAddrs: sentinel.SentinelAddrs(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == master {
				addr = proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	thaw := proxy.Freeze()
	defer thaw()
	b := open(t, client, redisstream.Options{})
	start := time.Now()
	require.ErrorIs(t, b.Publish(within(t, 200*time.Millisecond), batch("m", 1)), backend.ErrUnavailable)
	require.Less(t, time.Since(start), 2*time.Second)
}

func leavesReplacedMaster(t *testing.T, sentinel *redistest.Sentinel, client *redis.Client) {
	b := open(t, client, redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("warm", 3))
	require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 3))))

	old := sentinel.Master()
	admin := old.Client(t)
	var successor *redis.Client
	for _, server := range sentinel.Servers() {
		if server != old {
			successor = server.Client(t)
		}
	}
	wrote := func() int64 {
		info := admin.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
		var n, calls int64
		for _, name := range []string{"xadd", "xreadgroup", "evalsha", "eval", "xack"} {
			if _, err := fmt.Sscanf(info["cmdstat_"+name], "calls=%d", &calls); err == nil {
				n += calls
			}
		}
		return n
	}
	// The sentinels cannot make it a replica, nor end its connections.
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "default", "-slaveof", "-replicaof").Err())
	sentinel.Replace()

	has := func(c *redis.Client, m *backend.Message) bool {
		found, err := c.XRange(t.Context(), stream, m.Position, m.Position).Result()
		require.NoError(t, err)
		return len(found) == 1
	}
	confirmed := 0
	eventually(t, "what is published reaches the new master", func() bool {
		ms := batch(fmt.Sprint(confirmed), 1)
		if err := b.Publish(within(t, 5*time.Second), ms); err != nil {
			return false
		}
		confirmed++
		_, _ = s.Receive(within(t, 20*time.Millisecond), 10, 0)
		return has(successor, ms[0]) && !has(admin, ms[0])
	})
	require.Equal(t, "master", admin.Do(t.Context(), "role").Val().([]any)[0], "it has not heard of it")
	before := wrote()
	for n := range 50 {
		ms := batch(fmt.Sprint("after-", n), 1)
		publish(t, b, ms)
		require.True(t, has(successor, ms[0]))
	}
	again, err := b.Attach(t.Context(), config())
	require.NoError(t, err)
	receive(t, again, 50)
	require.Equal(t, before, wrote(), "commands at the old master")
	t.Logf("%d confirmed until the new master was found", confirmed)
}
