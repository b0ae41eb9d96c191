package redisstream

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed41896749/eventbus/internal/pool"
)

// A broker has the client that the program lent to the backend, and a pool of wires. Each
// call to the servers uses one wire.
type broker struct {
	client    redis.UniversalClient
	cluster   *redis.ClusterClient // the lent client if it is a ClusterClient, or else nil
	hooked    sync.Map             // *redis.Client to *atomic.Bool: the clients with a detour, and whether the server was inspected
	allHooked atomic.Bool          // all nodes that the lent client knew before New have a detour
	sentinel  bool                 // the lent client was made for Sentinel
	sessions  *pool.Pool[*session]
	all       sync.Map     // *wire to true: the wires of the pool and of members that have not ended
	pruned    atomic.Int64 // when prune last looked at all wires, in nanoseconds of Unix

	masterEpoch   atomic.Int64 // changes whenever Sentinel may have named another master
	sentinelConns atomic.Int64 // number of watchmen that are not closed
}

// wireKey is the key of a context value: the wire that the call with this context must use.
type sessionKey struct{}

// A detour is the innermost hook of the lent client, or of its client for one node of a
// Cluster. If the context of a call has a wire, the detour passes the call to a client of
// the wire. It lets all other calls through.
type sessionHook struct {
	broker *broker
	node   *redis.Client
}

var _ redis.Hook = sessionHook{}

// ProcessHook implements [redis.Hook].
func (d sessionHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if sess, ok := ctx.Value(sessionKey{}).(*session); ok {
			err := sess.client(d.node).Process(ctx, cmd)
			d.broker.reloadTopology(ctx, err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (d sessionHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		sess, ok := ctx.Value(sessionKey{}).(*session)
		if !ok {
			return next(ctx, cmds)
		}
		pipe := sess.client(d.node).Pipeline()
		_ = pipe.BatchProcess(ctx, cmds...) // it only queues the commands
		_, err := pipe.Exec(ctx)
		d.broker.reloadTopology(ctx, err)
		failed := func(c redis.Cmder) bool { return c.Err() != nil }
		if err != nil && !slices.ContainsFunc(cmds, failed) {
			// The server refused the connection with an error reply. go-redis gives such an
			// error to no command.
			for _, c := range cmds {
				c.SetErr(err)
			}
		}
		if d.broker.cluster != nil && cmds[0].Name() != "asking" {
			return nil // ClusterClient would also give err to the commands that succeeded
		}
		return err // in Cluster the command is behind ASKING, and nil would mean that it succeeded
	}
}

// suspect makes a Cluster client ask for the topology, if a server gave no answer: a replica
// may have replaced it. The client itself asks only before it repeats a command, which it
// never does for the backend, and otherwise once a minute.
func (b *broker) reloadTopology(ctx context.Context, err error) {
	if b.cluster != nil && !isReply(err) {
		b.cluster.ReloadState(ctx)
	}
}

// DialHook implements [redis.Hook]. When Sentinel names another master, go-redis closes the
// connections of the client that was made for Sentinel, but not the connections of wires.
// So each connection of that client is a watchman, and its end also ends the connections
// of wires.
func (d sessionHook) DialHook(next redis.DialHook) redis.DialHook {
	if d.node.Options().Addr != sentinelAddr {
		return next
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if d.broker.sentinelConns.Add(1) == 1 {
			d.broker.masterEpoch.Add(1) // the master may have changed while no watchman was open
		}
		return checked(&sentinelConn{Conn: c, broker: d.broker}, c), nil
	}
}

// underSentinel is the address that go-redis gives a client made for Sentinel.
const sentinelAddr = "FailoverClient"

// A watchman is a connection of a client made for Sentinel. After it is closed, for any
// reason, all wires close their connections and dial again.
type sentinelConn struct {
	net.Conn
	broker *broker
	closed atomic.Bool
}

// Close implements [net.Conn].
func (m *sentinelConn) Close() error {
	if !m.closed.Swap(true) {
		m.broker.masterEpoch.Add(1)
		m.broker.sentinelConns.Add(-1)
	}
	return m.Conn.Close()
}

// watchMaster makes sure that the lent client has an open watchman, because the end of a
// watchman tells the wires of a new master. Without Sentinel it does nothing. go-redis does
// not look at ctx while it waits for an answer. So a master that is silent may delay the end
// of a call by grace.
func (b *broker) ensureSentinelConn(ctx context.Context) error {
	if !b.sentinel || b.sentinelConns.Load() > 0 {
		return nil
	}
	return b.client.(*redis.Client).WithTimeout(cancelGrace).Ping(ctx).Err()
}

// node returns the lent client, or in Cluster its client for the master that has a key.
func (b *broker) node(ctx context.Context, key string) (*redis.Client, error) {
	if b.cluster != nil {
		if err := b.addHooks(ctx); err != nil {
			return nil, err
		}
		return b.cluster.MasterForKey(ctx, key)
	}
	return b.client.(*redis.Client), nil
}

// detourAll adds the detour, one time, to all nodes of a Cluster, because the lent client may
// have known nodes before New.
func (b *broker) addHooks(ctx context.Context) error {
	if b.allHooked.Load() {
		return nil
	}
	err := b.cluster.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
		b.addHook(node)
		return nil
	})
	if err == nil {
		b.allHooked.Store(true)
	}
	return err
}

// masterNodes returns the lent client, or in Cluster its clients for all masters.
func (b *broker) masterNodes(ctx context.Context) (nodes []*redis.Client, err error) {
	if b.cluster == nil {
		return []*redis.Client{b.client.(*redis.Client)}, nil
	}
	if err := b.addHooks(ctx); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	err = b.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}

// detour adds a detour to a client, unless the client has one. It returns the flag whose
// value is true after the client's server passed an inspection.
func (b *broker) addHook(node *redis.Client) (inspected *atomic.Bool) {
	flag, has := b.hooked.LoadOrStore(node, new(atomic.Bool))
	if !has {
		node.AddHook(sessionHook{b, node})
	}
	return flag.(*atomic.Bool)
}

const idleTimeout = time.Minute // a connection to a Cluster node that is unused for this time is closed

// prune closes, about once a minute, the connections to nodes of a Cluster that no call has
// used since the last time. The Cluster may have lost these nodes.
func (b *broker) prune() {
	if b.cluster == nil {
		return
	}
	now, before := time.Now(), b.pruned.Load()
	if since := time.Unix(0, before); now.Sub(since) > idleTimeout && b.pruned.CompareAndSwap(before, now.UnixNano()) {
		b.all.Range(func(sess, _ any) bool {
			sess.(*session).prune(since)
			return true
		})
	}
}

// sound reports whether the server of node passed an inspection.
func (b *broker) inspected(node *redis.Client) bool {
	flag, has := b.hooked.Load(node)
	return has && flag.(*atomic.Bool).Load()
}

// eachServer calls f for all servers at the same time. It returns the error of each.
func (b *broker) eachServer(ctx context.Context, f func(context.Context, *redis.Client) error) (nodes []*redis.Client, errs []error, err error) {
	err = b.with(ctx, func(sess *session) error {
		return sess.do(ctx, func(ctx context.Context) (err error) {
			if nodes, err = b.masterNodes(ctx); err != nil {
				return err
			}
			errs = make([]error, len(nodes))
			var asked sync.WaitGroup
			for i, node := range nodes {
				asked.Go(func() { errs[i] = f(ctx, node) })
			}
			asked.Wait()
			return nil
		})
	})
	return nodes, errs, err
}
