package contract

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var maintainLaws = []law.Law{
	{
		ID: "C44", Name: "maintain-next", Promise: "Maintain returns when it should be called next, at least 100 ms later",
		Needs:  []law.Need{law.NeedVerb[backend.Maintainer]()},
		Faults: []string{"maintain-trims-unread"}, Test: maintainNext,
	}, {
		ID: "M01", Name: "safe-trim", Promise: "no message is removed that a group has not settled, whatever the order of calls",
		Faults: []string{"maintain-trims-unread", "close-settles", "publish-loses"}, Test: safeTrim,
	}, {
		ID: "M04", Name: "trim-without-members", Promise: "Maintain removes no message that a group has not settled, even if the group has no members",
		Needs:  []law.Need{law.NeedVerb[backend.Maintainer]()},
		Faults: []string{"maintain-trims-unread"}, Test: trimWithoutMembers,
	}, {
		ID: "M05", Name: "trim-after-reset", Promise: "Maintain removes no message that a group has not settled since it was reset",
		Needs:  []law.Need{law.NeedVerb[backend.Maintainer](), law.NeedVerb[backend.Admin]()},
		Faults: []string{"maintain-trims-unread"}, Test: trimAfterReset,
	},
}

func maintainNext(e *law.Env) {
	v := e.Verbs()
	src := e.Attach("g")
	for range 3 {
		e.PublishN(10)
		next, err := v.Maintain(e.Context(), law.Topic, "g")
		e.Verb(err)
		if next < 100*time.Millisecond {
			e.Failf("got %v until the next call, want at least 100ms", next)
		}
		e.Ack(src, e.Receive(src, 10)...)
	}
}

func trimWithoutMembers(e *law.Env) {
	settles, leaves := e.Attach("settles"), e.Attach("leaves")
	want := law.IDsOf(e.PublishN(5))
	e.Must(leaves.Close())
	e.Ack(settles, e.Receive(settles, 5)...)
	e.Maintain("settles")
	if got := law.IDs(e.Receive(e.Attach("leaves"), 5)); !slices.Equal(got, want) {
		e.Failf("got %v, want what the group had not settled when its only member left: %v", got, want)
	}
}

// trimAfterReset lets each of two groups settle all messages, but never both at once, so that
// both Maintain calls find a group that has settled nothing.
func trimAfterReset(e *law.Env) {
	reset, other := e.Attach("reset"), e.Attach("other")
	want := law.IDsOf(e.PublishN(5))
	e.Ack(reset, e.Receive(reset, 5)...)
	e.Maintain("reset")
	e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "reset", backend.StartEarliest))
	e.Ack(other, e.Receive(other, 5)...)
	e.Maintain("other")
	if got := law.IDs(e.Receive(reset, 5)); !slices.Equal(got, want) {
		e.Failf("got %v, want what the group has not settled since its reset: %v", got, want)
	}
}

// safeTrim makes random calls and tracks in a model which messages each group has not
// settled. At the end, each group must deliver exactly these messages.
func safeTrim(e *law.Env) {
	var models []*model
	for round := range 5 {
		m := newModel(e, fmt.Sprintf("round-%d", round))
		models = append(models, m)
		for range 80 {
			m.step()
		}
	}
	for _, m := range models { // drains after all rounds, so that the waits for expired leases overlap
		for _, g := range m.groups {
			m.drain(g)
		}
	}
}

// A model tracks the unsettled messages of one topic's groups.
type model struct {
	*law.Env
	seed      uint64
	random    *rand.Rand
	topic     string
	groups    []*modelGroup
	published int
}

type modelGroup struct {
	name      string
	src       backend.Source
	unsettled map[string]bool
	unread    int // number of unsettled messages that were never received
	received  map[string]bool
	held      []backend.Delivery
}

func newModel(e *law.Env, topic string) *model {
	m := &model{Env: e, seed: rand.Uint64(), topic: topic}
	m.random = rand.New(rand.NewPCG(m.seed, 0))
	for _, name := range []string{"a", "b", "c"} {
		g := &modelGroup{name: name, unsettled: map[string]bool{}, received: map[string]bool{}}
		m.join(g)
		m.groups = append(m.groups, g)
	}
	return m
}

// join replaces the member of a group. Deliveries of the old member stay unsettled.
func (m *model) join(g *modelGroup) {
	if g.src != nil {
		m.Must(g.src.Close())
	}
	c := m.Config(backend.Config{Topic: m.topic, Group: g.name})
	c.ConfirmAcks = !m.Limits.FencedAcks // a fenced Ack fails if the lease has expired on a busy machine
	g.src, g.held = m.AttachTo(m.Backend, c), nil
}

// step does one random action on the backend, and updates the model.
func (m *model) step() {
	g := m.groups[m.random.IntN(len(m.groups))]
	switch m.random.IntN(10) {
	case 0, 1:
		m.publishSome(1 + m.random.IntN(5))
	case 2, 3, 4:
		if g.unread > 0 { // without new messages, Receive might wait
			m.got(g, m.Receive(g.src, 1+m.random.IntN(g.unread)))
		}
	case 5, 6, 7:
		for _, d := range m.pick(g) {
			m.Ack(g.src, d)
			delete(g.unsettled, d.ID)
		}
	case 8:
		if m.Claims(law.NeedVerb[backend.Maintainer]()) {
			_, err := m.Verbs().Maintain(m.Context(), m.topic, g.name)
			m.Must(err)
		}
	case 9:
		if m.random.IntN(4) == 0 {
			m.join(g)
		} else if _, ok := backend.As[backend.Delayer](g.src); ok {
			wait := time.Duration(m.random.Int64N(int64(m.Lease)))
			m.Delay(g.src, wait, m.pick(g)...) //nolint:errcheck // its lease may have expired
		}
	}
}

func (m *model) publishSome(n int) {
	for range n {
		id := fmt.Sprint(m.published)
		m.published++
		m.Publish(&backend.Message{Topic: m.topic, ID: id})
		for _, g := range m.groups {
			g.unsettled[id] = true
			g.unread++
		}
	}
}

// got records in the model that ds were delivered to g. It expects that no message in ds
// was settled before.
func (m *model) got(g *modelGroup, ds []backend.Delivery) {
	m.Helper()
	for _, d := range ds {
		if !g.unsettled[d.ID] {
			m.Failf("group %s got %q, which it has settled or was never published (seed %d)", g.name, d.ID, m.seed)
		}
		if !g.received[d.ID] {
			g.received[d.ID] = true
			g.unread--
		}
	}
	g.held = append(g.held, ds...)
}

// pick removes a random part of g.held, and returns it.
func (m *model) pick(g *modelGroup) []backend.Delivery {
	m.random.Shuffle(len(g.held), func(i, j int) { g.held[i], g.held[j] = g.held[j], g.held[i] })
	n := m.random.IntN(len(g.held) + 1)
	picked := g.held[:n:n]
	g.held = g.held[n:]
	return picked
}

// drain receives and settles messages of g until it has received all unsettled messages of
// the model.
func (m *model) drain(g *modelGroup) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), m.Patience())
	defer cancel()
	for len(g.unsettled) > 0 && ctx.Err() == nil {
		ds := m.Take(ctx, g.src, 100)
		m.got(g, ds)
		m.Ack(g.src, ds...)
		for _, d := range ds {
			delete(g.unsettled, d.ID)
		}
	}
	if len(g.unsettled) > 0 {
		m.Failf("group %s never got %v, which it has not settled (seed %d)", g.name, slices.Sorted(maps.Keys(g.unsettled)), m.seed)
	}
}
