package redisstream

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// A serverCheck checks the settings of the server one time, to see whether it keeps
// messages safely.
type serverCheck struct {
	turn     chan struct{} // has an element while one caller checks; then other callers wait
	done     atomic.Bool
	warnings []string // made by the check; fixed after done is set
}

// check refuses a server with an unsuitable version or eviction policy. It adds a warning
// if the server has no append-only file, or if the client may not read the settings.
func (s *serverCheck) check(ctx context.Context, b *Backend, w *wire) error {
	if s.done.Load() {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return classOf(ctx, ctx.Err(), false)
	}
	if s.done.Load() {
		return nil
	}
	s.warnings = nil
	err := w.do(ctx, 0, func(ctx context.Context) error {
		nodes, err := b.masterNodes(ctx)
		for _, node := range nodes {
			if err == nil {
				err = s.node(ctx, b, node)
			}
		}
		return err
	})
	if err != nil {
		return classOf(ctx, err, false) // the check changes nothing on the server
	}
	s.done.Store(true)
	return nil
}

func (s *serverCheck) node(ctx context.Context, b *Backend, node *redis.Client) error {
	info, err := node.InfoMap(ctx).Result()
	if redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'info'") {
		// A denied SELECT is returned as an error below, because then all other commands
		// are denied too.
		s.warnings = append(s.warnings, "may not look at the server's settings (INFO): version, eviction and persistence are not checked")
		return nil
	}
	if err != nil {
		return err
	}
	if v := info["Server"]["redis_version"]; older(v, 6, 2) {
		return fmt.Errorf("%w: the server is Redis %s; it must be 6.2 or later", backend.ErrRefused, v)
	}
	if v := info["Memory"]["maxmemory_policy"]; v != "noeviction" && v != "" && !b.options.AllowEviction {
		return fmt.Errorf("%w: the server's maxmemory-policy is %s: it would drop topics when its memory is full; set noeviction, or allow eviction in the options", backend.ErrRefused, v)
	}
	if info["Persistence"]["aof_enabled"] == "0" {
		s.warnings = append(s.warnings, "the server has no append-only file (appendonly no): a crash loses what was stored since its last snapshot")
	}
	return nil
}

// older reports whether version is before major.minor. It returns false for a version that
// it cannot read.
func older(version string, major, minor int) bool {
	var m, n int
	_, err := fmt.Sscanf(version, "%d.%d", &m, &n)
	return err == nil && (m < major || m == major && n < minor)
}

// tell sends the warnings to c.Notify as notices.
func (s *serverCheck) tell(c backend.Config) {
	if c.Notify == nil {
		return
	}
	for _, text := range s.warnings {
		c.Notify(backend.Notice{Topic: c.Topic, Group: c.Group, Text: "redis: " + text})
	}
}
