package checkup

import (
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/partition"
)

// groups reports groups in trouble, by their status.
func (r *run) groups() {
	for _, g := range r.snapshot.Groups() {
		if g.Err != "" {
			r.unseen("%s/%s: %s", g.Topic, g.Name, g.Err)
			continue
		}
		if g.Pause != nil {
			r.paused(g)
		}
		switch g.Status {
		case groupstats.Losing:
			r.find(backend.SeverityError, "group-losing", g.Topic, g.Name, g.Status.Explain()+" "+r.backlog(g),
				"raise the limit of the broker that removes events, and publish the lost events again")
		case groupstats.Stuck:
			r.find(backend.SeverityError, "group-stuck", g.Topic, g.Name, g.Status.Explain()+" "+r.backlog(g),
				"look at the logs of the handler; if one event fails every time or hangs, bury it with eventbus groups bury; if handlers hang, restart their program")
		case groupstats.NoMembers:
			r.deserted(g)
		case groupstats.Behind:
			r.behind(g)
		case groupstats.Unknown:
			r.unseen("%s/%s: the backend does not describe it", g.Topic, g.Name)
		}
	}
}

// backlog describes how many events a group has not settled and how old they are.
func (r *run) backlog(g *groupstats.Group) string {
	return fmt.Sprintf("It has not received %s, holds %s and delays %s; the oldest is %s old.", of(g.Lag), of(g.InFlight), of(g.Delayed), r.age(g.Oldest))
}

func of(n groupstats.Count) string {
	if !n.Known() {
		return "an unknown number of events"
	}
	return plural.Of(int64(n), "event")
}

// age returns the age of t as text.
func (r *run) age(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return r.since(t).Truncate(time.Second).String()
}

func (r *run) since(t time.Time) time.Duration { return max(r.now.Sub(t), 0) } // the broker's clock may be ahead

// deserted reports a group whose events nobody handles. A group without events is fine, because its program may run only
// from time to time.
func (r *run) deserted(g *groupstats.Group) {
	switch {
	case g.Oldest.IsZero() || r.since(g.Oldest) < r.Late:
	case r.since(g.Oldest) >= r.Old:
		r.find(backend.SeverityWarning, "group-abandoned", g.Topic, g.Name, "No member is attached, and its oldest event is old. "+r.backlog(g),
			"start its program, or delete the group if nobody needs its events", "eventbus", "groups", "delete", g.Topic, g.Name, "--yes")
	case g.InFlight > 0:
		r.find(backend.SeverityError, "group-died", g.Topic, g.Name, "Its members ended without giving back the events that they held. "+r.backlog(g),
			"start its program again; it gets the events when their leases have expired")
	default:
		r.find(backend.SeverityWarning, "group-no-members", g.Topic, g.Name, g.Status.Explain()+" "+r.backlog(g), "start its program")
	}
}

// behind reports a group whose oldest event is late. If all its events are waiting for another attempt, that may be what
// the program wants.
func (r *run) behind(g *groupstats.Group) {
	if g.RetriesOnly() {
		r.find(backend.SeverityNote, "group-retries", g.Topic, g.Name, "Its oldest events fail and are waiting for another attempt. "+r.backlog(g),
			"look at the logs of the handler")
		return
	}
	r.find(backend.SeverityWarning, "group-behind", g.Topic, g.Name, "Its oldest event is late. "+r.backlog(g),
		"start more processes or more handlers, or look at the logs of the handler")
}

// paused reports a pause.
func (r *run) paused(g *groupstats.Group) {
	severity := backend.SeverityNote
	if r.since(g.Pause.Since) >= r.Old {
		severity = backend.SeverityWarning
	}
	text := "paused since " + g.Pause.Since.UTC().Format(time.RFC3339)
	if g.Pause.By != "" {
		text += " by " + g.Pause.By
	}
	if g.Pause.Why != "" {
		text += ", because: " + g.Pause.Why
	}
	topic, remedy := g.Topic, "resume it"
	for _, p := range g.Parts {
		if p.Paused {
			topic, remedy = partition.Topic(g.Topic, p.Number), "resume it in this partition, and in every other one that is paused"
			break
		}
	}
	r.find(severity, "group-paused", g.Topic, g.Name, "The group is "+text+". "+r.backlog(g), remedy, "eventbus", "groups", "resume", topic, g.Name)
}

// missing reports groups that should exist. A group gets no events from before it was created, unless the topic keeps them.
func (r *run) missing() {
	if len(r.Wanted) > 0 && r.snapshot.Beyond > 0 {
		r.unseen("whether the groups of the file exist, because there are too many groups")
		return
	}
	for _, w := range r.Wanted {
		if t := r.snapshot.Topic(w.Topic); t != nil && (t.Err != "" || t.Group(w.Group) != nil) {
			continue
		}
		r.find(backend.SeverityWarning, "group-missing", w.Topic, w.Group,
			"The group of the subscription "+w.Subscription+" does not exist, so it may miss events until it does.", "start its program")
	}
}

// letters reports dead letters that are too many or too old.
func (r *run) letters() {
	for _, t := range r.snapshot.Topics {
		l := t.Letters
		switch {
		case l == nil:
		case l.Unknown:
			r.unseen("the dead letters in %s", t.Name)
		default:
			r.lettersOf(t.Name, l)
		}
	}
}

func (r *run) lettersOf(topic string, l *groupstats.Letters) {
	var oldest time.Time
	for _, c := range l.Classes {
		if oldest.IsZero() || c.Oldest.Before(oldest) {
			oldest = c.Oldest
		}
	}
	if l.More {
		r.unseen("the dead letters in %s beyond the first %d", topic, l.N)
	}
	remedy := "find the cause with eventbus dlq ls, fix it, and redrive the events"
	command := []string{"eventbus", "dlq", "redrive", topic}
	if l.N >= r.Letters {
		r.find(backend.SeverityWarning, "letters-many", topic, "", fmt.Sprintf("The topic has %s. %s", lettersIn(l), kinds(l)), remedy, command...)
	} else if l.N > 0 && r.since(oldest) >= r.Old {
		r.find(backend.SeverityWarning, "letters-old", topic, "",
			fmt.Sprintf("The topic has %s, the oldest of which is %s old. %s", lettersIn(l), r.age(oldest), kinds(l)), remedy, command...)
	}
}

func lettersIn(l *groupstats.Letters) string {
	if l.More {
		return l.String() + " dead letters"
	}
	return plural.Of(l.N, "dead letter")
}

// kinds describes the largest class of dead letters.
func kinds(l *groupstats.Letters) string {
	if len(l.Classes) == 0 {
		return ""
	}
	c := l.Classes[0]
	return fmt.Sprintf("Most, %d, are of %s/%s: %s.", c.N, c.Topic, c.Group, c.Reason)
}
