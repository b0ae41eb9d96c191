package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// The consumer of an ephemeral group has an InactiveThreshold, after which the server deletes
// it, and a mark of each member in its metadata. The last member that closes deletes it.
const (
	ephemeralLeases = 10                 // the threshold in leases, see backend.Config.Ephemeral
	memberKey       = "eventbus.member." // begins the mark of a member
	leaveFor        = time.Second        // longest wait of Close for the server
	unheard         = uint64(1)<<62 - 1  // a sequence that no message has
)

// needs are the settings that a member needs in the consumer of its group.
type needs struct {
	lease time.Duration
	mark  string // key of its mark in the metadata; empty unless the group is ephemeral
}

// threshold returns the InactiveThreshold, or 0 for a group that is not ephemeral.
func (n needs) threshold() time.Duration {
	if n.mark == "" {
		return 0
	}
	return ephemeralLeases * n.lease
}

// adapt changes c so that it meets the needs. It lowers neither a lease nor a threshold.
func (n needs) adapt(c *jetstream.ConsumerConfig) (changed bool) {
	if c.AckWait < n.lease {
		c.AckWait, changed = n.lease, true
	}
	if c.InactiveThreshold < n.threshold() {
		c.InactiveThreshold, changed = n.threshold(), true
	}
	if _, marked := c.Metadata[n.mark]; n.mark != "" && !marked {
		c.Metadata = maps.Clone(c.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[n.mark], changed = time.Now().UTC().Format(time.RFC3339), true
	}
	return changed
}

// leave ends the group of an ephemeral member that closes, if it was the last one. If it cannot,
// the server deletes the group later. It forgets the group, because the names of ephemeral
// groups may be many.
func (s *source) leave(ctx context.Context) {
	b, p := s.backend, s.place
	b.created.Delete(p.topic + "/" + s.config.Group)
	b.pacer.forget(p.topic, s.config.Group)
	b.upkeep.forgetGroup(p.topic, s.config.Group)
	var info jetstream.ConsumerInfo
	err := b.ask(ctx, consumerInfo(p, s.config.Group), nil, &info)
	if _, marked := info.Config.Metadata[s.needs.mark]; err == nil && marked {
		delete(info.Config.Metadata, s.needs.mark)
		if hasMembers(info.Config) {
			err = b.putConsumer(ctx, p, info.Config, "update", nil)
		} else {
			err = b.deleteGroup(ctx, p, s.config.Group)
		}
	}
	if err != nil && !errors.Is(classOf(ctx, err, false), backend.ErrGone) {
		notify(s.config, fmt.Sprintf("the group stays until the server finds that it has had no member for %v: %v", s.needs.threshold(), err))
	}
}

// hasMembers reports whether the consumer of an ephemeral group has marks of members.
func hasMembers(c jetstream.ConsumerConfig) bool {
	for key := range c.Metadata {
		if strings.HasPrefix(key, memberKey) {
			return true
		}
	}
	return false
}

// beat tells the server that the ephemeral group of a member lives. The server counts any
// acknowledgement as a sign of life, and ignores this one of a message that does not exist.
func (s *source) beat(ctx context.Context) error {
	subject := (recovery{s}).replies(1)(unheard)
	m, err := s.backend.request(ctx, outgoing{subject: subject, data: progressBody}, false)
	if err == nil && isUnserved(m) {
		err = fmt.Errorf("%w: %s", backend.ErrUnavailable, unserved)
	}
	return err
}
