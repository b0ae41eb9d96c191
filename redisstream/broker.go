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

// A broker reaches the servers. It has the client that was passed to [New] and a pool of
// sessions; each call uses one session.
type broker struct {
	client    redis.UniversalClient
	cluster   *redis.ClusterClient // client if it is a ClusterClient, otherwise nil
	hooked    sync.Map             // *redis.Client to *atomic.Bool: clients with a sessionHook, and whether their server passed its inspection
	allHooked atomic.Bool          // all nodes that client knew before New have a sessionHook
	sentinel  bool                 // client was made for Sentinel
	sessions  *pool.Pool[*session]
	all       sync.Map     // *session to true: all sessions that have not ended, of the pool and of readerPool
	pruned    atomic.Int64 // when prune last ran, in nanoseconds since 1970

	masterEpoch   atomic.Int64 // grows whenever Sentinel may have named another master
	sentinelConns atomic.Int64 // number of open sentinelConns
}

// sessionKey is the context key of the session that a call must use.
type sessionKey struct{}

// A sessionHook is the innermost hook of the program's client, or of its client for one node of
// a Cluster. If the context of a command has a session, the hook passes the command to the
// session's own client for that node. All other commands continue as usual.
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
			// The server refused the connection with an error reply, which go-redis assigns
			// to no command.
			for _, c := range cmds {
				c.SetErr(err)
			}
		}
		if d.broker.cluster != nil && cmds[0].Name() != "asking" {
			return nil // for err, ClusterClient would fail the commands that succeeded too
		}
		return err // behind ASKING, nil would mean that the command succeeded
	}
}

// reloadTopology makes a Cluster client reload the topology if err is not a reply: a replica may
// have taken over from the server. On its own the client reloads only once a minute, and before
// it retries a command, which it never does for the backend.
func (b *broker) reloadTopology(ctx context.Context, err error) {
	if b.cluster != nil && !isReply(err) {
		b.cluster.ReloadState(ctx)
	}
}

// DialHook implements [redis.Hook]. When Sentinel names another master, go-redis closes the
// connections of its failover client, but not those of our sessions. Wrapping the failover
// client's connections as sentinelConns lets the sessions notice.
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
			d.broker.masterEpoch.Add(1) // the master may have changed while none was open
		}
		return checked(&sentinelConn{Conn: c, broker: d.broker}, c), nil
	}
}

// sentinelAddr is the address that go-redis gives a failover client.
const sentinelAddr = "FailoverClient"

// A sentinelConn is a connection of a failover client. Once it is closed, for whatever reason,
// all sessions close their connections and dial again.
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

// ensureSentinelConn makes sure that the failover client has an open sentinelConn, because only
// its end shows that the master has changed. Without Sentinel it does nothing. go-redis ignores
// ctx while it waits for a reply, so a silent master may delay the end of a call by cancelGrace.
func (b *broker) ensureSentinelConn(ctx context.Context) error {
	if !b.sentinel || b.sentinelConns.Load() > 0 {
		return nil
	}
	return b.client.(*redis.Client).WithTimeout(cancelGrace).Ping(ctx).Err()
}

// node returns the client for the server of a key: the program's client, or in Cluster its
// client for the master that has the key.
func (b *broker) node(ctx context.Context, key string) (*redis.Client, error) {
	if b.cluster != nil {
		if err := b.addHooks(ctx); err != nil {
			return nil, err
		}
		return b.cluster.MasterForKey(ctx, key)
	}
	return b.client.(*redis.Client), nil
}

// addHooks hooks all nodes of a Cluster, once, because the client may have known nodes before
// New.
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

// masterNodes returns the program's client, or in Cluster its clients for all masters.
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

// addHook adds a sessionHook to a client, unless it has one. It returns the flag that is set
// once the client's server has passed an inspection.
func (b *broker) addHook(node *redis.Client) (inspected *atomic.Bool) {
	flag, has := b.hooked.LoadOrStore(node, new(atomic.Bool))
	if !has {
		node.AddHook(sessionHook{b, node})
	}
	return flag.(*atomic.Bool)
}

const idleTimeout = time.Minute // unused connections to Cluster nodes are closed after this time

// prune closes, about once a minute, the connections to Cluster nodes that no call has used
// since the last time. The Cluster may have lost these nodes.
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

// inspected reports whether the server of node has passed an inspection.
func (b *broker) inspected(node *redis.Client) bool {
	flag, has := b.hooked.Load(node)
	return has && flag.(*atomic.Bool).Load()
}

// eachServer calls f for all servers at the same time, and returns the error of each.
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
