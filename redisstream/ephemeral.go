package redisstream

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	livenessLeases  = 10               // leases for which a member counts as heard of; see backend.Config
	heartbeatLeases = 3                // leases after which Maintain must be called again for an ephemeral group
	minCheckDelay   = 10 * time.Second // least time until a new member is checked; attaching takes less
	checkClaim      = 30 * time.Second // how long a process has the members that it checks to itself
	reapEvery       = 5 * time.Second  // time between two checks by one process
	reapTimeout     = time.Second      // duration of one check
	maxReap         = 100              // members of one check
)

// ephemeralGroups deletes the ephemeral groups whose members are gone. Each such group has a
// sorted set of its members, and closing the last member deletes the group. To find members
// that have died, the server also has one index of the members of all such groups, by the time
// at which somebody must check them. A living member postpones its check with Maintain, so the
// members whose time has come are the dead ones. Every process asks for them.
//
// A member enters the index before it enters its group, so it cannot be missed. If the index is
// lost, Maintain of the living members builds it again.
type ephemeralGroups struct {
	backend  *Backend
	lastReap atomic.Int64 // when reap last began, in nanoseconds since 1970
}

// updateIndex returns a call that sets when members must be checked, and asks for at most limit
// members whose time has come. updates are names and milliseconds; see index.lua.
func (e *ephemeralGroups) updateIndex(limit int, updates ...any) *call {
	return indexScript.call([]string{e.backend.indexKey()}, append([]any{limit, millis(checkClaim)}, updates...)...)
}

// indexName returns the name of a member in the index.
func indexName(s *source) string { return s.config.Topic + "/" + s.config.Group + "/" + s.name }

// livenessMillis returns how long a member with this lease counts as heard of, in milliseconds.
func livenessMillis(lease time.Duration) int64 {
	return millis(livenessLeases * min(lease, math.MaxInt64/livenessLeases))
}

// checkMillis returns in how many milliseconds a member with this lease must be checked.
func checkMillis(lease time.Duration) int64 { return max(livenessMillis(lease), millis(minCheckDelay)) }

// expire returns a call that deletes a group if none of its members has been heard of.
func (e *ephemeralGroups) expire(topic, group, member string, leaves bool) *call {
	return expireScript.call(groupKeys(e.backend.streamKey(topic), group), group, member, leaves)
}

// register puts a member that is about to attach into the index.
func (e *ephemeralGroups) register(ctx context.Context, s *source) error {
	c := e.updateIndex(0, indexName(s), checkMillis(s.config.Lease))
	e.backend.send(ctx, c)
	return c.err
}

// unregister ends a member, and its group if no other member has been heard of.
func (e *ephemeralGroups) unregister(ctx context.Context, s *source) {
	c := e.expire(s.config.Topic, s.config.Group, s.name, true)
	if e.backend.send(ctx, c); c.err == nil {
		e.backend.send(ctx, e.updateIndex(0, indexName(s), 0))
	}
}

// heartbeat returns the calls that tell the server that the members of a group are alive, and
// the time until they must be made again.
func (e *ephemeralGroups) heartbeat(topic, group string) (calls []*call, next time.Duration) {
	members := e.backend.members.ephemeral(topic, group)
	if next = trimIdle; len(members) == 0 {
		return nil, next
	}
	var args, updates []any
	for _, s := range members {
		args, updates = append(args, s.name, livenessMillis(s.config.Lease)), append(updates, indexName(s), checkMillis(s.config.Lease))
		next = min(next, heartbeatLeases*min(s.config.Lease, trimIdle))
	}
	delayed := delayedKey(e.backend.streamKey(topic), group)
	alive := heartbeatScript.call([]string{membersKey(delayed), instancesKey(delayed), delayed}, args...)
	return []*call{e.updateIndex(0, updates...), alive}, max(next, trimMore)
}

// reap checks the members whose time has come, and deletes their groups if no member has been
// heard of. Its errors do not matter to the caller, who maintains another topic, because the
// next check by any process repeats it.
func (e *ephemeralGroups) reap(ctx context.Context) {
	now, before := time.Now(), e.lastReap.Load()
	if now.Sub(time.Unix(0, before)) < reapEvery || !e.lastReap.CompareAndSwap(before, now.UnixNano()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	due := e.updateIndex(maxReap)
	e.backend.send(ctx, due)
	var names []string
	var checks []*call
	for range due.array() {
		name := string(due.bulk())
		if at := strings.SplitN(name, "/", 3); len(at) == 3 {
			names, checks = append(names, name), append(checks, e.expire(at[0], at[1], at[2], false))
		}
	}
	if len(checks) == 0 {
		return
	}
	e.backend.send(ctx, checks...)
	var updates []any
	for i, c := range checks {
		stays := c.integer()
		switch {
		case c.err == nil:
			updates = append(updates, names[i], stays)
		case errors.Is(c.err, backend.ErrDenied):
			e.backend.warnings.warn("not allowed to delete ephemeral groups whose members have died: " + c.err.Error())
		}
	}
	e.backend.send(ctx, e.updateIndex(0, updates...))
}
