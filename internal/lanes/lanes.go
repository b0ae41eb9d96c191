// Package lanes keeps the order of keys: of each key one item runs at a time,
// in the order of positions, and what was sent away to come back later is
// waited for.
package lanes

import (
	"slices"
	"strings"
	"time"
)

// Lanes are ready to use when zero. They are not safe for concurrent use: the
// caller has a lock of its own around them.
type Lanes[T comparable] struct {
	lanes map[string]*lane[T]
	free  []*lane[T] // empty ones, for the next keys
	away  int        // in all lanes
}

// A lane has the items of one key. It exists while one runs, waits or is away.
type lane[T any] struct {
	busy  bool        // one runs
	queue []queued[T] // held, by position
	away  []absent    // to come back, by position
}

type queued[T any] struct {
	position string
	item     T
}

type absent struct {
	position string
	due      time.Time
	leaving  bool // it is not away yet: see Left
}

// Enter adds an item that has arrived. It returns the item of this key that is
// to run now, if any: the lane is then busy until [Lanes.Leave].
func (l *Lanes[T]) Enter(key, position string, item T) (T, bool) {
	n := l.lane(key)
	if i, ok := slices.BinarySearchFunc(n.away, position, absent.compare); ok {
		n.away = slices.Delete(n.away, i, i+1)
		l.away--
	}
	i := len(n.queue)
	for i > 0 && n.queue[i-1].position > position { // almost always at the end
		i--
	}
	n.queue = slices.Insert(n.queue, i, queued[T]{position, item})
	return l.next(key, n)
}

// Awaited returns when the item at position is due to come back; zero if it is not
// away.
func (l *Lanes[T]) Awaited(key, position string) time.Time {
	if l.away == 0 {
		return time.Time{}
	}
	if n := l.lanes[key]; n != nil {
		if i, ok := slices.BinarySearchFunc(n.away, position, absent.compare); ok {
			return n.away[i].due
		}
	}
	return time.Time{}
}

// Crowded reports whether an item of key should not enter but go back, since
// something before it is away and limit items wait already; and until when.
func (l *Lanes[T]) Crowded(key, position string, limit int) (due time.Time, crowded bool) {
	n := l.lanes[key]
	if n == nil || len(n.away) == 0 || n.away[0].position >= position || len(n.queue) < limit {
		return time.Time{}, false
	}
	return n.away[0].due, true
}

// Away notes that an item was sent away until due: nothing behind it runs before
// it has come back, or is given up. What is only leaving is not given up before
// [Lanes.Left].
func (l *Lanes[T]) Away(key, position string, due time.Time, leaving bool) {
	n := l.lane(key)
	i, ok := slices.BinarySearchFunc(n.away, position, absent.compare)
	if ok {
		if leaving || !n.away[i].leaving { // another with its position leaves, and says so
			n.away[i].due, n.away[i].leaving = due, leaving
		}
		return
	}
	n.away = slices.Insert(n.away, i, absent{position, due, leaving})
	l.away++
}

// Left notes that what was leaving has left, if it has not come back already: it
// is due when that was said, but not before the given moment.
func (l *Lanes[T]) Left(key, position string, notBefore time.Time) {
	n := l.lanes[key]
	if n == nil {
		return
	}
	i, ok := slices.BinarySearchFunc(n.away, position, absent.compare)
	if !ok || !n.away[i].leaving {
		return
	}
	n.away[i].leaving = false
	if n.away[i].due.Before(notBefore) {
		n.away[i].due = notBefore
	}
}

// AwayCount is how many items are away, in all lanes.
func (l *Lanes[T]) AwayCount() int { return l.away }

// Due returns how many of those that are away are due by now, and when the first
// of all is.
func (l *Lanes[T]) Due(now time.Time) (n int, first time.Time) {
	if l.away == 0 {
		return 0, time.Time{}
	}
	for _, lane := range l.lanes {
		for _, a := range lane.away {
			if !a.due.After(now) {
				n++
			}
			if first.IsZero() || a.due.Before(first) {
				first = a.due
			}
		}
	}
	return n, first
}

// Leave ends the run of key's item and returns the next to run, if any.
func (l *Lanes[T]) Leave(key string) (T, bool) {
	n := l.lanes[key]
	n.busy = false
	return l.next(key, n)
}

// Remove takes out an item that waits and is no longer held, and no other that has
// its position, as one that came again has. It returns the next to run, if any.
func (l *Lanes[T]) Remove(key string, item T) (T, bool) {
	n := l.lanes[key]
	if n == nil {
		var none T
		return none, false
	}
	n.queue = slices.DeleteFunc(n.queue, func(q queued[T]) bool { return q.item == item })
	return l.next(key, n)
}

// GiveUp stops waiting for what was due at or before the given moment, and is before
// a position if that is not empty: it is with another member. It returns what is to
// run now.
func (l *Lanes[T]) GiveUp(before time.Time, below string) (run []T) {
	return l.dropAway(func(a absent) bool {
		return !a.leaving && !a.due.After(before) && (below == "" || a.position < below)
	})
}

// Returned notes that those at some positions have come back without entering: their
// keys need not be known. It returns what is to run now.
func (l *Lanes[T]) Returned(positions map[string]bool) (run []T) {
	return l.dropAway(func(a absent) bool { return positions[a.position] })
}

// Forget stops waiting for all that is away: it will not come back. It returns
// what is to run now.
func (l *Lanes[T]) Forget() (run []T) { return l.dropAway(func(absent) bool { return true }) }

func (l *Lanes[T]) dropAway(which func(absent) bool) (run []T) {
	if l.away == 0 {
		return nil
	}
	for key, n := range l.lanes {
		was := len(n.away)
		if was == 0 {
			continue
		}
		n.away = slices.DeleteFunc(n.away, which)
		l.away -= was - len(n.away)
		if item, ok := l.next(key, n); ok {
			run = append(run, item)
		}
	}
	return run
}

// next starts the first item of the queue unless something before it runs or is
// away, and forgets a lane that is empty.
func (l *Lanes[T]) next(key string, n *lane[T]) (item T, ok bool) {
	switch {
	case n.busy:
		return item, false
	case len(n.queue) == 0:
		if len(n.away) == 0 {
			delete(l.lanes, key)
			if len(l.free) < 1024 {
				l.free = append(l.free, n)
			}
		}
		return item, false
	case len(n.away) > 0 && n.away[0].position < n.queue[0].position:
		return item, false
	}
	item = n.queue[0].item
	n.queue = slices.Delete(n.queue, 0, 1)
	n.busy = true
	return item, true
}

func (l *Lanes[T]) lane(key string) *lane[T] {
	n := l.lanes[key]
	if n != nil {
		return n
	}
	if last := len(l.free) - 1; last >= 0 {
		n, l.free = l.free[last], l.free[:last]
	} else {
		n = &lane[T]{}
	}
	if l.lanes == nil {
		l.lanes = map[string]*lane[T]{}
	}
	l.lanes[key] = n
	return n
}

func (a absent) compare(position string) int { return strings.Compare(a.position, position) }
