package redisstream

import (
	"context"
	"slices"
	"time"
)

const (
	markMemory     = 24 * time.Hour         // how long the server remembers the last incarnation of an instance
	markRenew      = time.Hour              // how often a member renews that
	lateReadWindow = blockTime + replyGrace // how long a read of a replaced member may still get entries
)

// An incarnation is the current life of an instance, as a member sees it. For each instance of
// a group the server has a mark, which holds its last incarnation. A member reads the mark with
// each Receive, and ends if it finds another incarnation. attach.lua sets the mark, and gives
// back all entries of earlier incarnations. Nothing needs to be cleaned up later: the mark
// expires, and Maintain removes consumers.
//
// A read that a member began before it was replaced may still get entries, and its process may
// be dead or frozen. For a short time, each run of take.lua therefore gives back the entries of
// replaced members as well.
type incarnation struct {
	mark     string // key of the mark
	name     string
	renewed  time.Time
	replaced []any // names of replaced members
	attached time.Time
}

// join adds s to its group, which it creates if necessary, and replaces the members of earlier
// incarnations.
func (i *incarnation) join(ctx context.Context, s *source, start string) error {
	c := s.config
	keys := []string{s.stream, trimmedKey(s.stream), youngKey(s.stream), membersKey(s.delayed), instancesKey(s.delayed)}
	args := []any{c.Group, s.name, start, millis(s.backend.youngFor), 0}
	if c.Ephemeral {
		args[4] = livenessMillis(c.Lease)
	}
	if c.Instance != "" {
		i.mark, i.name = instanceKey(s.delayed, c.Instance), c.Incarnation
		keys = append(keys, s.delayed, i.mark)
		args = append(args, millis(markMemory))
	}
	for more := true; more; { // a run gives back a bounded number of entries
		call := s.backend.run(ctx, attachScript, keys, args...)
		n := call.array()
		more = call.integer() == 1
		for range n - 1 {
			if name := any(string(call.bulk())); !slices.Contains(i.replaced, name) {
				i.replaced = append(i.replaced, name)
			}
		}
		if err := call.end(); err != nil {
			return err
		}
	}
	i.attached = time.Now()
	i.renewed = i.attached
	return nil
}

// takeArgs returns keys with the key of the mark appended, and further arguments of take.lua.
func (i *incarnation) takeArgs(keys []string, now time.Time) (all []string, args []any) {
	if i.mark == "" {
		return keys, nil
	}
	renew := now.Sub(i.renewed) > markRenew
	if renew {
		i.renewed = now
	}
	args = []any{renew, millis(markMemory)}
	if now.Sub(i.attached) > lateReadWindow {
		i.replaced = nil
	}
	return append(keys, i.mark), append(args, i.replaced...)
}

// markQuery returns the call that reads the mark, if the member belongs to an instance.
func (i *incarnation) markQuery() []*call {
	if i.mark == "" {
		return nil
	}
	return []*call{{args: []any{"get", i.mark}}}
}

// superseded reports whether the reply names a later incarnation. Without a reply it returns
// false, because the next run of take.lua reads the mark again.
func (i *incarnation) superseded(reply *call) bool {
	latest := string(reply.bulk())
	return reply.err == nil && latest != "" && latest != i.name
}
