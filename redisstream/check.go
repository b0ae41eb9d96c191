package redisstream

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// check looks, until it has succeeded one time, whether the server keeps messages safely. It
// refuses a server with an unsuitable version or eviction policy. It makes a warning if the
// server has no append-only file, or if the client may not read the settings.
func (b *Backend) check(ctx context.Context, w *wire) error {
	if b.warnings.Load() != nil {
		return nil
	}
	var warnings []string
	err := w.do(ctx, func(ctx context.Context) error {
		nodes, err := b.masterNodes(ctx)
		for _, node := range nodes {
			if err == nil {
				warnings, err = b.options.check(ctx, node, warnings)
			}
		}
		return err
	})
	if err != nil {
		return classOf(ctx, err, false) // the check changes nothing on the server
	}
	b.warnings.Store(&warnings)
	return nil
}

// check checks one server. It returns warnings, and appends its own.
func (o Options) check(ctx context.Context, node *redis.Client, warnings []string) ([]string, error) {
	info, err := node.InfoMap(ctx).Result()
	if redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'info'") {
		// A denied SELECT is returned as an error below, because then all other commands
		// are denied too.
		return append(warnings, "may not look at the server's settings (INFO): version, eviction and persistence are not checked"), nil
	}
	if err != nil {
		return nil, err
	}
	if v := info["Server"]["redis_version"]; older(v, 6, 2) {
		return nil, fmt.Errorf("%w: the server is Redis %s; it must be 6.2 or later", backend.ErrRefused, v)
	}
	if v := info["Memory"]["maxmemory_policy"]; v != "noeviction" && v != "" && !o.AllowEviction {
		return nil, fmt.Errorf("%w: the server's maxmemory-policy is %s: it would drop topics when its memory is full; set noeviction, or allow eviction in the options", backend.ErrRefused, v)
	}
	if info["Persistence"]["aof_enabled"] == "0" {
		warnings = append(warnings, "the server has no append-only file (appendonly no): a crash loses what was stored since its last snapshot")
	}
	return warnings, nil
}

// older reports whether version is before major.minor. It returns false for a version that
// it cannot read.
func older(version string, major, minor int) bool {
	var m, n int
	_, err := fmt.Sscanf(version, "%d.%d", &m, &n)
	return err == nil && (m < major || m == major && n < minor)
}

// warn sends the warnings of check to c.Notify as notices.
func (b *Backend) warn(c backend.Config) {
	for _, text := range *b.warnings.Load() {
		if c.Notify != nil {
			c.Notify(backend.Notice{Topic: c.Topic, Group: c.Group, Text: "redis: " + text})
		}
	}
}
