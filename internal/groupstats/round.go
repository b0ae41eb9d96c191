package groupstats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pages"
	"github.com/seed41896749/eventbus/internal/pattern"
)

// Limits of a round.
const (
	atOnce      = 4    // calls of the backend at the same time
	mostGroups  = 2000 // that are described
	mostOutages = 4    // after which the round is given up
	listEvery   = 10 * time.Second
	listShare   = 20 // listing takes at most 1/20 of the time
	listTime    = 10 // timeouts of one call for the list of topics, because Redis walks through all keys of the server
	countCalls  = 40 // of Read for dead letters
	countBytes  = 32 << 20
)

// memory is what a Sampler remembers from one round to the next.
type memory struct {
	list      []*listed
	beyond    int       // groups beyond mostGroups
	announced bool      // the topic of package presence exists
	due       time.Time // when to list again
	progress  map[groupName]*progress
	counters  map[string]*letterCounter
	first     int // the counter whose turn it is
	rounds    int
}

type groupName struct{ topic, group string }

func newMemory() memory {
	return memory{progress: map[groupName]*progress{}, counters: map[string]*letterCounter{}}
}

// A listed is a topic of the backend with its groups and their stats in this round.
type listed struct {
	topic  string
	groups []*measured
	err    error
}

type measured struct {
	name  string
	pause *backend.Pause
	stats Stats
	gone  bool
	err   error
}

// A round queries the backend once about all groups.
type round struct {
	*Sampler
	now     time.Time
	calls   atomic.Int64
	outages atomic.Int64
}

// round takes a Snapshot, and returns the number of calls that it took.
func (s *Sampler) round(ctx context.Context) (*Snapshot, int64) {
	r := &round{Sampler: s, now: time.Now()}
	s.memory.rounds++
	snapshot, err := r.take(ctx)
	if err != nil {
		snapshot = &Snapshot{Err: err}
	}
	snapshot.Tried = time.Now()
	return snapshot, r.calls.Load()
}

func (r *round) take(ctx context.Context) (*Snapshot, error) {
	err := r.call(ctx, func(ctx context.Context) error { return backend.Ping(ctx, r.backend) })
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	if !r.now.Before(r.memory.due) {
		if err := r.listAll(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.measure(ctx); err != nil {
		return nil, err
	}
	letters, err := r.count(ctx)
	if err != nil {
		return nil, err
	}
	return r.assemble(letters), nil
}

// call calls f, one call of the backend, with a timeout. A panic of the driver becomes an error, because looking must not
// crash the program.
func (r *round) call(ctx context.Context, f func(context.Context) error) error {
	return r.callFor(ctx, r.options.Timeout, f)
}

func (r *round) callFor(ctx context.Context, d time.Duration, f func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the driver has panicked: %v", v)
		}
	}()
	r.calls.Add(1)
	return f(ctx)
}

// listAll lists the topics and their groups, with their pauses.
func (r *round) listAll(ctx context.Context) error {
	admin, ok := backend.As[backend.Admin](r.backend)
	if !ok {
		return errors.New("this backend cannot list its topics")
	}
	began := time.Now()
	var names []string
	err := r.callFor(ctx, listTime*r.options.Timeout, func(ctx context.Context) (err error) { names, err = admin.Topics(ctx); return err })
	if err != nil {
		return err
	}
	all := make([]*listed, len(names))
	err = r.each(len(all), func(i int) error {
		t := &listed{topic: names[i]}
		all[i] = t
		t.err = r.call(ctx, func(ctx context.Context) error {
			groups, err := admin.Groups(ctx, t.topic)
			for _, g := range groups {
				t.groups = append(t.groups, &measured{name: g})
			}
			return err
		})
		return t.err
	})
	if err != nil {
		return err
	}
	r.memory.announced = slices.Contains(names, pattern.Presence)
	r.memory.list, r.memory.beyond = bounded(slices.DeleteFunc(all, func(t *listed) bool { return errors.Is(t.err, backend.ErrGone) || t.topic == pattern.Presence }))
	if err := r.pauses(ctx); err != nil {
		return err
	}
	r.memory.due = r.now.Add(max(listEvery, listShare*time.Since(began)))
	return nil
}

// bounded removes the groups beyond mostGroups and returns how many they were.
func bounded(all []*listed) ([]*listed, int) {
	left, beyond := mostGroups, 0
	for _, t := range all {
		n := min(len(t.groups), left)
		left, beyond = left-n, beyond+len(t.groups)-n
		t.groups = t.groups[:n]
	}
	return all, beyond
}

// pauses fetches the pauses of all groups. An unknown pause counts as none.
func (r *round) pauses(ctx context.Context) error {
	pauser, ok := backend.As[backend.Pauser](r.backend)
	if !ok {
		return nil
	}
	return r.eachGroup(func(t *listed, g *measured) error {
		return r.call(ctx, func(ctx context.Context) (err error) {
			g.pause, err = pauseOf(ctx, pauser, t.topic, g.name)
			return err
		})
	})
}

// measure fetches the stats of all groups.
func (r *round) measure(ctx context.Context) error {
	return r.eachGroup(func(t *listed, g *measured) error {
		g.stats = Untold // even after a panic of the driver
		g.err = r.call(ctx, func(ctx context.Context) (err error) {
			g.stats, err = describe(ctx, r.backend, t.topic, g.name)
			return err
		})
		if g.gone = errors.Is(g.err, backend.ErrGone); g.gone {
			g.err = nil
		}
		return g.err
	})
}

func (r *round) eachGroup(f func(*listed, *measured) error) error {
	type one struct {
		t *listed
		g *measured
	}
	var all []one
	for _, t := range r.memory.list {
		for _, g := range t.groups {
			all = append(all, one{t, g})
		}
	}
	return r.each(len(all), func(i int) error { return f(all[i].t, all[i].g) })
}

// each calls f for 0 to n-1, a few at a time. It ignores the errors of f, except for outages: when a round has seen more
// than mostOutages of them, each stops and returns the error.
func (r *round) each(n int, f func(i int) error) error {
	var workers sync.WaitGroup
	var next atomic.Int64
	var failed atomic.Pointer[error]
	for range min(atOnce, n) {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < n && failed.Load() == nil; i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil && isOutage(err) && r.outages.Add(1) > mostOutages {
					failed.Store(&err)
				}
			}
		})
	}
	workers.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// count counts dead letters for a limited part of the round. The topics take turns.
func (r *round) count(ctx context.Context) (map[string]*Letters, error) {
	names := r.letterTopics()
	m, found := &r.memory, map[string]*Letters{}
	r.mu.Lock()
	changed := r.changed
	r.changed = nil
	r.mu.Unlock()
	for name, t := range m.counters {
		if !slices.Contains(names, name) {
			delete(m.counters, name)
		} else if slices.Contains(changed, name) {
			t.restart()
		}
	}
	left := &pages.Bounds{Calls: countCalls, Events: countCalls * 100, Bytes: countBytes}
	m.first++
	for i := range names {
		name := names[(m.first+i)%len(names)]
		t := m.counters[name]
		if t == nil {
			t = &letterCounter{topic: name, redact: r.options.Redact}
			m.counters[name] = t
		}
		letters, err := t.step(ctx, r.backend, r.options.Timeout, left, r.now)
		switch {
		case err == nil:
		case isOutage(err) && r.outages.Add(1) > mostOutages:
			return nil, err
		default:
			letters = &Letters{Topic: name, Unknown: true}
		}
		found[name] = letters
	}
	r.calls.Add(int64(countCalls - left.Calls))
	return found, nil
}

// letterTopics returns the names of the topics whose letters are counted.
func (r *round) letterTopics() (names []string) {
	for _, t := range r.memory.list {
		if isLetters(t.topic) {
			names = append(names, t.topic)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, at := range r.wanted {
		if r.now.Sub(at) <= r.options.Idle && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func isLetters(topic string) bool {
	return strings.HasSuffix(topic, LettersSuffix) && len(topic) > len(LettersSuffix)
}

// assemble makes the Snapshot of a round, and folds the partitions of each topic.
func (r *round) assemble(letters map[string]*Letters) *Snapshot {
	s := &Snapshot{Taken: r.now, Beyond: r.memory.beyond, Announced: r.memory.announced}
	topics := map[string]*Topic{}
	topic := func(name string) *Topic {
		t := topics[name]
		if t == nil {
			t = &Topic{Name: name, Depth: backend.Unknown}
			topics[name], s.Topics = t, append(s.Topics, t)
		}
		return t
	}
	owners := map[groupName]Count{} // members by group
	for _, l := range r.memory.list {
		role, of, number := roleOf(l.topic)
		if role == isLog && len(l.groups) > 0 {
			role, of = plain, l.topic
		}
		t := topic(of)
		switch role {
		case isOwners:
			for _, g := range l.groups {
				owners[groupName{of, g.name}] = g.stats.Members
			}
			t.Inner = append(t.Inner, l.topic)
			continue
		case isInner, isLog:
			t.Inner = append(t.Inner, l.topic)
			continue
		case isPartition:
			t.Partitions = append(t.Partitions, number)
		default:
			t.Exists, t.Letters = true, letters[l.topic]
		}
		if l.err != nil {
			t.Err = l.err.Error()
		}
		for _, g := range l.groups {
			if !g.gone {
				t.addGroup(g, role == isPartition, number)
			}
		}
	}
	for _, t := range s.Topics {
		for _, g := range t.Groups {
			if n, ok := owners[groupName{t.Name, g.Name}]; ok && len(t.Partitions) > 0 {
				g.Members = n
			}
			g.Dead = letters[t.Name+LettersSuffix].Of(g.Name)
			r.judge(g)
		}
		t.finish()
	}
	slices.SortFunc(s.Topics, func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
	r.forget()
	return s
}

// addGroup adds the stats of a group in the topic itself or in one partition.
func (t *Topic) addGroup(m *measured, part bool, number int) {
	g := t.Group(m.name)
	if g == nil {
		g = &Group{Topic: t.Name, Name: m.name, Stats: m.stats, Pause: m.pause}
		t.Groups = append(t.Groups, g)
	} else {
		g.add(m.stats)
		g.Pause = cmp.Or(g.Pause, m.pause)
	}
	if m.err != nil {
		g.Err = m.err.Error()
	}
	if part {
		g.Parts = append(g.Parts, Part{Number: number, Stats: m.stats, Paused: m.pause != nil})
	}
}

// finish sorts the parts of a topic, and sets its depth.
func (t *Topic) finish() {
	slices.Sort(t.Partitions)
	slices.Sort(t.Inner)
	slices.SortFunc(t.Groups, func(a, b *Group) int { return cmp.Compare(a.Name, b.Name) })
	for _, g := range t.Groups {
		slices.SortFunc(g.Parts, func(a, b Part) int { return cmp.Compare(a.Number, b.Number) })
		t.Depth = max(t.Depth, g.Depth)
	}
}

// judge sets the status and the history of a group.
func (r *round) judge(g *Group) {
	name := groupName{g.Topic, g.Name}
	tr := r.memory.progress[name]
	if tr == nil {
		tr = &progress{}
		r.memory.progress[name] = tr
	}
	tr.round = r.memory.rounds
	short := g.lost()
	for i := range g.Parts {
		short = short || g.Parts[i].lost()
	}
	idle, lost := tr.record(r.now, &g.Stats, short)
	g.Idle, g.History = idle, tr.history()
	var age time.Duration
	if !g.Oldest.IsZero() {
		age = r.now.Sub(g.Oldest)
	}
	g.Status = judge(&evidence{
		stats: &g.Stats, paused: g.Pause != nil, lost: lost, idle: idle, age: age,
		behind: r.options.Behind, late: r.options.Stuck,
	})
}

// forget drops what it remembers of groups that are gone.
func (r *round) forget() {
	for name, t := range r.memory.progress {
		if t.round != r.memory.rounds {
			delete(r.memory.progress, name)
		}
	}
}
