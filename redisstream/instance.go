package redisstream

import (
	"context"
	"slices"
	"time"
)

const (
	markMemory     = 24 * time.Hour         // how long the server remembers the last incarnation of an instance
	markRenew      = time.Hour              // how often a member makes it remember anew
	lateReadWindow = blockTime + replyGrace // how long a read of a replaced member may still get entries
)

// An incarnation is the present life of a process with a name, as a member sees it. The
// server has a mark for each instance of a group: its last incarnation. A member reads the mark
// with each Receive, and ends if it is another incarnation. attach.lua sets the mark and gives
// back all entries of the earlier incarnations. Nothing must be removed later, because the
// mark expires, and Maintain removes consumers.
//
// A read that a member began before it was replaced may still get entries, and its process
// may be dead or frozen. So for a short time, take.lua gives back the entries of replaced
// members with each run.
type incarnation struct {
	mark     string // key of the mark
	name     string
	renewed  time.Time
	replaced []any // names of replaced members
	attached time.Time
}

// join makes s a member of its group, and the group if it does not exist. It replaces the
// members of earlier incarnations.
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
	for more := true; more; { // each run gives back more
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

// arguments returns keys with the key of the mark, and the further arguments of take.lua.
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

// question returns the call that reads the mark, if the member is of an instance.
func (i *incarnation) markQuery() []*call {
	if i.mark == "" {
		return nil
	}
	return []*call{{args: []any{"get", i.mark}}}
}

// ended reports whether the answer names a later incarnation. Without an answer it returns false: the
// next run of take.lua reads the mark again.
func (i *incarnation) superseded(answer *call) bool {
	latest := string(answer.bulk())
	return answer.err == nil && latest != "" && latest != i.name
}
