package redisstream

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// derivable returns an error unless derive knows the client's type.
func derivable(lent redis.UniversalClient) error {
	switch lent.(type) {
	case *redis.Client, *redis.ClusterClient:
		return nil
	}
	return fmt.Errorf("a %T cannot be used: it must be a *redis.Client or a *redis.ClusterClient", lent)
}

// poolRoom is what a wire's pool has room for, of which it uses one: after as many
// failed dials go-redis does not dial for up to a second.
const poolRoom = 64

// derive returns a client of w with the address, credentials, TLS and dialer of
// lent, which may come from redis.NewFailoverClient. What concerns pools, time
// and repeating is ours: one connection (to each node), nothing done twice.
func derive(lent redis.UniversalClient, w *wire, wait time.Duration) redis.UniversalClient {
	switch lent := lent.(type) {
	case *redis.Client:
		o := *lent.Options()
		o.Dialer, o.OnConnect = w.dialer(o.Dialer), w.connected(o.OnConnect)
		o.Protocol, o.MaxRetries, o.DialerRetries = 2, -1, 1
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials, o.PipelinePoolSize = poolRoom, 0, 1, 0, 0, -1
		o.ReadTimeout, o.ContextTimeoutEnabled = wait, false
		o.DisableIdentity = true
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.PushNotificationProcessor, o.ClientSideCache, o.ClientSideCacheConfig, o.Limiter = nil, nil, nil, nil
		w.goStraight(&o)
		return redis.NewClient(&o)
	case *redis.ClusterClient:
		o := *lent.Options()
		dial := o.Dialer
		if dial == nil {
			dial = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		}
		o.Dialer, o.OnConnect = w.dialer(dial), w.connected(o.OnConnect)
		o.Protocol, o.MaxRetries, o.DialerRetries = 2, -1, 1
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials, o.PipelinePoolSize = poolRoom, 0, 1, 0, 0, -1
		o.ReadTimeout, o.ContextTimeoutEnabled = wait, false
		o.DisableIdentity, o.DisableRoutingPolicies = true, true
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return redis.NewClusterClient(&o)
	}
	panic("redisstream: not derivable")
}
