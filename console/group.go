package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/presence"
)

// A groupPage is the page of one group.
type groupPage struct {
	Group *groupstats.Group
	Topic *groupstats.Topic

	Owners  *partitionOwners // nil: the topic has no partitions
	Retries *groupRetries    // nil: there is no such group
	Members *groupMembers    // nil: there is no such group

	Pauses, Resumes bool // a pause, or its end, may change something
}

func (c *console) group(w http.ResponseWriter, r *http.Request) {
	topic, ok := c.topicParam(w, r, "topic")
	if !ok {
		return
	}
	name := r.URL.Query().Get("name")
	s := c.sampler.Look(r.Context())
	body, code := groupPage{}, http.StatusOK
	if body.Topic = s.Topic(topic); body.Topic != nil {
		body.Group = body.Topic.Group(name)
	}
	if body.Group == nil {
		if code = http.StatusNotFound; s.Taken.IsZero() {
			code = http.StatusServiceUnavailable
		}
	}
	p := &page{Title: name + " of " + topic, Live: true, Figures: s, Body: &body}
	if g := body.Group; g != nil {
		body.Owners, body.Retries = c.ownersOf(r, body.Topic, g.Name), c.retriesOf(r, s, g)
		body.Members = c.membersOf(r.Context(), s, g.Topic, g.Name)
		body.Retries.Named = len(body.Members.Failing.Rows) > 0
		if body.Members.Failing.Buries = offers(c, r, Action{Topic: topic, Group: name}, Bury); body.Members.Failing.Buries {
			body.Members.Failing.bury(c.executor.jobs)
		}
		p.Permit = c.permissions(w, r, Action{Topic: topic, Group: name}, Pause, Resume, Reset, DeleteGroup)
		body.Pauses, body.Resumes = true, true
		if p.Permit != nil {
			if paused, known := c.pausedNow(r.Context(), body.Topic, g.Name); known {
				body.Pauses, body.Resumes = !paused, paused
			}
		}
	}
	c.render(w, r, code, "group", p)
}

// Fields returns the fields of a form that names the group.
func (p *groupPage) Fields() url.Values {
	return url.Values{"topic": {p.Group.Topic}, "name": {p.Group.Name}}
}

// pausedNow queries the backend whether a group is paused, because the sampled state may be some seconds
// old and a visitor may have paused it since then. known is false if the group has partitions, which may
// differ, or the backend cannot say.
func (r *reader) pausedNow(ctx context.Context, t *groupstats.Topic, group string) (paused, known bool) {
	pauser, ok := backend.As[backend.Pauser](r.backend)
	if !ok || len(t.Partitions) > 0 {
		return false, false
	}
	paused, err := readShared(ctx, r, "paused\x00"+t.Name+"\x00"+group, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		p, err := pauser.Paused(ctx, t.Name, group)
		return !p.Since.IsZero(), err
	})
	return paused, err == nil
}

// partitionOwners are the members of a group, with the partitions that each owns.
type partitionOwners struct {
	Rows    []partitionOwner // empty: the number of partitions is not known
	More    int              // members that are not shown
	Failure *failure
}

// A partitionOwner is a member and its partitions. The one without a name has those that no
// member owns.
type partitionOwner struct {
	Member     string
	State      string
	Owns       int
	Partitions string
}

const maxOwners = 200

// partitionMembers are the members of all groups of a topic.
type partitionMembers struct {
	number  int // of partitions
	members []partition.Member
}

// ownersOf returns the owners in a group, or nil for a topic without partitions.
func (c *console) ownersOf(r *http.Request, t *groupstats.Topic, group string) *partitionOwners {
	if len(t.Partitions) == 0 {
		return nil
	}
	all, err := c.partitionMembersOf(r.Context(), t.Name)
	if err != nil {
		_, f := failureOf(err)
		return &partitionOwners{Failure: &f}
	}
	members, free := partition.OwnersOf(group, all.number, all.members)
	o := &partitionOwners{More: max(len(members)-maxOwners, 0)}
	for _, m := range members[:len(members)-o.More] {
		o.Rows = append(o.Rows, partitionOwner{m.Name, memberStateText(&m), len(m.Owned), partition.Ranges(m.Owned)})
	}
	if len(free) > 0 {
		o.Rows = append(o.Rows, partitionOwner{State: "free", Owns: len(free), Partitions: partition.Ranges(free)})
	}
	return o
}

// memberStateText returns a word for a member.
func memberStateText(m *partition.Member) string {
	switch {
	case m.Lives:
		return "alive"
	case m.Silent():
		return "silent"
	}
	return "not known yet"
}

// partitionMembersOf reads the heartbeats of the members once. Comparing them with those of earlier
// requests shows which members are alive.
func (r *reader) partitionMembersOf(ctx context.Context, topic string) (partitionMembers, error) {
	return readShared(ctx, r, "owners\x00"+topic, func(ctx context.Context) (n partitionMembers, err error) {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		if n.number, err = partition.Number(ctx, r.backend, topic); err != nil {
			return n, err
		}
		err = r.owners.use(ctx, topic, func(roll *partition.Roll) error {
			n.members, err = roll.Look(ctx, r.backend, topic)
			return err
		})
		return n, err
	})
}

// groupRetries are the events of a group that are waiting for another attempt, as far as the lifecycle
// records show.
type groupRetries struct {
	Topic   string
	Rows    []shownRecord    // the next attempt first
	More    int              // waiting events that are not shown
	Delayed groupstats.Count // waiting events, according to the backend
	Known   bool             // the topic has lifecycle records
	Named   bool             // members name events that fail
	Read    int              // the records among which the page has looked
	Failure *failure
}

// retriesOf returns the retries of a group. It reads nothing if the topic has no lifecycle records.
func (c *console) retriesOf(r *http.Request, s *groupstats.Snapshot, g *groupstats.Group) *groupRetries {
	w := &groupRetries{Topic: g.Topic, Delayed: g.Delayed}
	if w.Known = s.Topic(lifecycle.Topic(g.Topic)) != nil; !w.Known {
		return w
	}
	all, err := c.recordsOf(r.Context(), g.Topic)
	if err != nil {
		_, f := failureOf(err)
		w.Failure = &f
		return w
	}
	w.Read, w.Rows = len(all), waitingRecords(all, g.Name)
	if w.More = max(len(w.Rows)-pageRows, 0); w.More > 0 {
		w.Rows = w.Rows[:pageRows]
	}
	return w
}

// groupMembers are the members of a group that announce themselves, and their settings.
type groupMembers struct {
	Rows     []memberRow
	More     int // members that are not shown
	LeftOut  int // subscriptions that the heartbeats of their processes leave out
	Failing  failingEvents
	Differ   []presence.Setting // settings in which the members differ
	Settings []presence.Setting // settings in which they agree
	Failure  *failure
}

// A memberRow is one subscription of a process.
type memberRow struct {
	presence.Process
	Member presence.Subscription
}

// failingEvents wait for another attempt in members that are not silent, the next attempt first.
type failingEvents struct {
	Rows     []failingEvent
	More     int  // events that are not shown
	Buries   bool // the visitor may bury an event
	Redacted bool // the rows have neither ID nor key nor error; see Options.Redact
}

// A failingEvent waits for another attempt in a member.
type failingEvent struct {
	presence.Event
	Process string
	Buried  bool // it was made a dead letter, and its member has not noticed yet
	group   string
}

const maxFailing = 50

// URL returns the URL of the event.
func (e *failingEvent) URL() string { return eventURL(e.Topic, e.Position) }

// BuryURL returns the URL of the page that asks before the event is buried.
func (e *failingEvent) BuryURL() string { return buryURL(e.Topic, e.group, e.Position) }

// add adds the events of topic that fail in the subscription s of p.
func (f *failingEvents) add(p *presence.Process, s *presence.Subscription, topic string) {
	if p.Silent {
		return
	}
	for _, e := range s.Events {
		if f.Redacted {
			e.ID, e.Key, e.Error = "", "", ""
		}
		of, _, parts := partition.Cut(e.Topic)
		if e.Topic == topic || parts && of == topic {
			f.Rows = append(f.Rows, failingEvent{Event: e, Process: p.Name, group: s.Group})
		}
	}
}

// bury marks the events that jobs have made dead letters.
func (f *failingEvents) bury(js *jobRegistry) {
	for i := range f.Rows {
		e := &f.Rows[i]
		e.Buried = js.buried(e.Topic, e.group, e.Position)
	}
}

// end sorts the rows, and leaves out the ones that are too many.
func (f *failingEvents) end() {
	slices.SortStableFunc(f.Rows, func(a, b failingEvent) int { return a.Due.Compare(b.Due) })
	f.More = max(len(f.Rows)-maxFailing, 0)
	f.Rows = f.Rows[:len(f.Rows)-f.More]
}

// membersOf returns the members of a group that announce themselves. It reads nothing if the last sample
// found no heartbeats.
func (r *reader) membersOf(ctx context.Context, s *groupstats.Snapshot, topic, group string) *groupMembers {
	if !s.Announced {
		return &groupMembers{}
	}
	all, err := r.announced(ctx)
	if err != nil {
		_, f := failureOf(err)
		return &groupMembers{Failure: &f}
	}
	m := &groupMembers{Failing: failingEvents{Redacted: r.redact != nil}}
	var compared []presence.Process
	for _, p := range all {
		var own []presence.Subscription
		for _, s := range p.Subscriptions {
			if s.Group == group && s.Reads(topic) {
				m.Rows = append(m.Rows, memberRow{p, s})
				m.Failing.add(&p, &s, topic)
				s.Topic = topic // members with a pattern are members too
				own = append(own, s)
			}
		}
		p.Subscriptions = own
		m.LeftOut += p.More
		compared = append(compared, p)
	}
	m.Failing.end()
	if m.More = max(len(m.Rows)-maxProcesses, 0); m.More > 0 {
		m.Rows = m.Rows[:maxProcesses]
	}
	for _, s := range presence.Compare(compared) {
		if s.Differs() {
			m.Differ = append(m.Differ, s)
		} else {
			m.Settings = append(m.Settings, s)
		}
	}
	return m
}
