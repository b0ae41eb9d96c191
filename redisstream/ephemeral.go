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
	livenessLeases  = 10               // for so many leases a member counts as heard of, see backend.Config
	heartbeatLeases = 3                // after so many leases Maintain is to be called for an ephemeral group
	minCheckDelay   = 10 * time.Second // least time to the first look at a new member; an Attach takes less
	checkClaim      = 30 * time.Second // for so long a process that looks at members has them to itself
	reapEvery       = 5 * time.Second  // time between two looks of one process
	reapTimeout     = time.Second      // longest duration of a look
	maxReap         = 100              // most members of one look
)

// ephemerals deletes the ephemeral groups whose members have gone. Each such group has a
// sorted set of its members. Close of the last member deletes the group. The server also
// has one index of the members of all such groups, by the time when somebody must look at
// them. A living member moves its time by Maintain. So every process asks for the members
// whose time has come, and finds the members that have died.
//
// A member is in the index before it is in its group, so it cannot be forgotten. If the
// index is lost, Maintain of the living members makes it anew.
type ephemeralGroups struct {
	backend  *Backend
	lastReap atomic.Int64 // when sweep last began, in nanoseconds of Unix
}

// index returns a call that notes members in the index, and asks for at most most. The notes
// are names and milliseconds, see index.lua.
func (e *ephemeralGroups) updateIndex(most int, notes ...any) *call {
	return indexScript.call([]string{e.backend.indexKey()}, append([]any{most, millis(checkClaim)}, notes...)...)
}

// placeOf returns the name of a member in the index.
func indexName(s *source) string { return s.config.Topic + "/" + s.config.Group + "/" + s.name }

// heardOf returns how long a member with this lease counts as heard of, in milliseconds.
func livenessMillis(lease time.Duration) int64 {
	return millis(livenessLeases * min(lease, math.MaxInt64/livenessLeases))
}

// lookAt returns when somebody must look at a member with this lease, in milliseconds from now.
func checkMillis(lease time.Duration) int64 { return max(livenessMillis(lease), millis(minCheckDelay)) }

// expire returns a call that deletes a group if no member is heard of.
func (e *ephemeralGroups) expire(topic, group, member string, leaves bool) *call {
	return expireScript.call(groupKeys(e.backend.streamKey(topic), group), group, member, leaves)
}

// enter notes a member that is about to attach.
func (e *ephemeralGroups) register(ctx context.Context, s *source) error {
	c := e.updateIndex(0, indexName(s), checkMillis(s.config.Lease))
	e.backend.send(ctx, c)
	return c.err
}

// leave ends a member, and its group if no other member is heard of.
func (e *ephemeralGroups) unregister(ctx context.Context, s *source) {
	c := e.expire(s.config.Topic, s.config.Group, s.name, true)
	if e.backend.send(ctx, c); c.err == nil {
		e.backend.send(ctx, e.updateIndex(0, indexName(s), 0))
	}
}

// hear returns the calls by which the server hears of the members of a group, and the time
// until they must be made again.
func (e *ephemeralGroups) heartbeat(topic, group string) (calls []*call, next time.Duration) {
	members := e.backend.members.ephemeral(topic, group)
	if next = trimIdle; len(members) == 0 {
		return nil, next
	}
	var args, notes []any
	for _, s := range members {
		args, notes = append(args, s.name, livenessMillis(s.config.Lease)), append(notes, indexName(s), checkMillis(s.config.Lease))
		next = min(next, heartbeatLeases*min(s.config.Lease, trimIdle))
	}
	delayed := delayedKey(e.backend.streamKey(topic), group)
	heard := heartbeatScript.call([]string{membersKey(delayed), instancesKey(delayed), delayed}, args...)
	return []*call{e.updateIndex(0, notes...), heard}, max(next, trimMore)
}

// sweep looks at the members whose time has come, and deletes their groups if no member is
// heard of. Its errors do not matter to the caller, who maintains another topic: the next
// look of any process repeats it.
func (e *ephemeralGroups) reap(ctx context.Context) {
	now, before := time.Now(), e.lastReap.Load()
	if now.Sub(time.Unix(0, before)) < reapEvery || !e.lastReap.CompareAndSwap(before, now.UnixNano()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	due := e.updateIndex(maxReap)
	e.backend.send(ctx, due)
	var places []string
	var looks []*call
	for range due.array() {
		place := string(due.bulk())
		if at := strings.SplitN(place, "/", 3); len(at) == 3 {
			places, looks = append(places, place), append(looks, e.expire(at[0], at[1], at[2], false))
		}
	}
	if len(looks) == 0 {
		return
	}
	e.backend.send(ctx, looks...)
	var notes []any
	for i, c := range looks {
		stays := c.integer()
		switch {
		case c.err == nil:
			notes = append(notes, places[i], stays)
		case errors.Is(c.err, backend.ErrDenied):
			e.backend.warnings.warn("may not delete ephemeral groups whose members have died: " + c.err.Error())
		}
	}
	e.backend.send(ctx, e.updateIndex(0, notes...))
}
