package checkup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
)

// Limits of a run.
const (
	mostUnread  = 200              // reads for topics without a group
	mostDivided = 50               // topics with partitions that are looked at
	mostClocks  = 5                // topics by which the broker is asked for its time
	callTime    = 2 * time.Second  // of one call
	ownersTime  = 30 * time.Second // of looking at the members of topics with partitions
	skew        = time.Second      // between two clocks that is worth reporting
)

// call calls f, one call of the backend. It returns nil if the topic is gone or the backend does not support the call.
func call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := f(ctx)
	if errors.Is(err, backend.ErrGone) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// unread reports topics whose events no group gets, except for dead-letter topics, which have no groups.
func (r *run) unread(ctx context.Context) error {
	left := mostUnread
	for _, t := range r.snapshot.Topics {
		if t.Err != "" || len(t.Groups) > 0 || t.Letters != nil {
			continue
		}
		var names []string
		if t.Exists {
			names = append(names, t.Name)
		}
		for _, p := range t.Partitions {
			names = append(names, partition.Topic(t.Name, p))
		}
		if left -= len(names); left < 0 {
			r.unseen("whether the topic %s, which has no group, has events", t.Name)
			continue
		}
		if err := r.unreadIn(ctx, t.Name, names); err != nil {
			return err
		}
	}
	return nil
}

// unreadIn reports a topic without a group if it has an event in any of its parts.
func (r *run) unreadIn(ctx context.Context, topic string, parts []string) error {
	for _, name := range parts {
		var first []backend.Message
		err := call(ctx, func(ctx context.Context) (err error) {
			first, err = backend.Read(ctx, r.backend, name, backend.StartEarliest, 1)
			return err
		})
		if errors.Is(err, backend.ErrDenied) {
			r.unseen("the events of %s", topic)
			return nil
		}
		if err != nil {
			return err
		}
		if len(first) > 0 {
			r.find(backend.SeverityWarning, "topic-unread", topic, "",
				fmt.Sprintf("The topic has events, the oldest of which is %s old, but no group that gets them.", r.age(eventbus.EventOf(&first[0]).Time)),
				"start the program of a group, or delete the topic", "eventbus", "topics", "delete", name, "--yes")
			return nil
		}
	}
	return nil
}

// divided returns the topics with partitions.
func (r *run) divided(ctx context.Context) (topics []string, err error) {
	admin, ok := backend.As[backend.Admin](r.backend)
	if !ok {
		return nil, errors.New("this backend cannot list its topics")
	}
	names, err := admin.Topics(ctx)
	topics = operator.Partitioned(names)
	return topics[:min(len(topics), mostDivided)], err
}

// An owned names a silent member of a group or, with an empty member, the partitions that nobody owns.
type owned struct{ topic, group, member string }

// owners returns the silent members, and the groups with partitions that no member owns. Given the result of an earlier
// call, it reports those that have not changed since; the others come and go with every deployment.
func (r *run) owners(ctx context.Context, before map[owned][]int) (map[owned][]int, error) {
	ctx, cancel := context.WithTimeout(ctx, ownersTime)
	defer cancel()
	topics, err := r.divided(ctx)
	if err != nil || len(topics) == 0 {
		return nil, err
	}
	s, err := groupstats.NewSurvey(r.backend)
	if err != nil {
		return nil, err
	}
	rows, err := s.Owners(ctx, topics...)
	if err != nil {
		return nil, err
	}
	now := map[owned][]int{}
	for _, o := range rows {
		alive := slices.ContainsFunc(rows, func(p groupstats.OwnerRow) bool { return p.Topic == o.Topic && p.Group == o.Group && p.Lives })
		if o.Lives || o.Member == "" && !alive {
			continue
		}
		key := owned{o.Topic, o.Group, o.Member}
		now[key] = o.Partitions
		was, seen := before[key]
		still := slices.DeleteFunc(slices.Clone(o.Partitions), func(p int) bool { return !slices.Contains(was, p) })
		switch {
		case !seen:
		case o.Member != "":
			r.find(backend.SeverityWarning, "member-silent", o.Topic, o.Group,
				fmt.Sprintf("The member %q has sent no heartbeat for several seconds: it is dead or hangs. It owned %s.", o.Member, partitions(o.Partitions)),
				"stop or restart its process")
		case len(still) > 0:
			r.find(backend.SeverityWarning, "partition-free", o.Topic, o.Group,
				fmt.Sprintf("No member owns %s, so nobody gets their events, although there are live members.", partitions(still)),
				"look at the logs of the members; eventbus groups --owners shows them", "eventbus", "groups", o.Topic, "--owners")
		}
	}
	return now, nil
}

func partitions(numbers []int) string {
	if len(numbers) == 0 {
		return "no partition"
	}
	return "the partitions " + partition.Ranges(numbers)
}

// numbers reports unfinished changes of the number of partitions, and partitions out of use.
func (r *run) numbers(ctx context.Context) error {
	n := 0
	for _, t := range r.snapshot.Topics {
		if !slices.Contains(t.Inner, partition.NumberTopic(t.Name)) {
			continue
		}
		if n++; n > mostDivided {
			continue
		}
		var number int
		var open *partition.NumberError
		err := call(ctx, func(ctx context.Context) (err error) {
			number, open, err = partition.Unfinished(ctx, r.backend, t.Name)
			return err
		})
		if err != nil {
			return err
		}
		if open != nil && r.since(open.Began) >= r.Late {
			r.find(backend.SeverityError, "partitions-unfinished", t.Name, "",
				fmt.Sprintf("The number of partitions is %d. %q began to change it to %d at %s and did not finish, so publishers wait.",
					open.Stored, open.By, open.Next, open.Began.UTC().Format(time.RFC3339)),
				"if that command is no longer running, repeat it", "eventbus", "topics", "set", t.Name, "--partitions", strconv.Itoa(open.Next), "--yes")
		}
		for _, p := range t.Partitions {
			if number > 0 && p >= number && open == nil {
				name := partition.Topic(t.Name, p)
				r.find(backend.SeverityWarning, "partition-left", t.Name, "",
					fmt.Sprintf("The topic %s exists, but %s has only %d partitions, so nobody gets its events.", name, t.Name, number),
					"look at it with eventbus tail, then delete it", "eventbus", "topics", "delete", name, "--yes")
			}
		}
	}
	if n > mostDivided {
		r.unseen("%d of %d topics with partitions", n-mostDivided, n)
	}
	return nil
}

// clock reports a difference between the clocks of this machine and the broker.
func (r *run) clock(ctx context.Context) error {
	n := 0
	for _, t := range r.snapshot.Topics {
		if !t.Exists {
			continue
		}
		if n++; n > mostClocks {
			return nil
		}
		var ahead, took time.Duration
		err := call(ctx, func(ctx context.Context) error {
			began := time.Now()
			now, err := backend.Now(ctx, r.backend, t.Name)
			took = time.Since(began)
			if err == nil {
				ahead = now.Round(0).Sub(began.Round(0).Add(took / 2))
			}
			return err
		})
		if err != nil {
			return err
		}
		if off := time.Duration(math.Abs(float64(ahead))); off >= skew+took/2 {
			word := "ahead of"
			if ahead < 0 {
				word = "behind"
			}
			r.find(backend.SeverityWarning, "clock-skew", "", "",
				fmt.Sprintf("The clock of the broker is %v %s the clock of this machine: scheduled events, and ages in reports, are off by as much.", off.Round(time.Millisecond), word),
				"synchronize both clocks, for example with chrony")
			return nil
		}
	}
	return nil
}
