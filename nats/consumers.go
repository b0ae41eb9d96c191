package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// ensureGroup creates the stream of a topic and the consumer of a group if they are missing. It
// refuses existing ones whose settings would break a promise.
func (b *Backend) ensureGroup(ctx context.Context, loc *location, c backend.Config, n needs) (*jetstream.ConsumerInfo, error) {
	if n := loc.consumer(c.Group); len(n) > maxName {
		return nil, fmt.Errorf("%w: %s has %d bytes, more than the %d that the name of a consumer may have", backend.ErrRefused, n, len(n), maxName)
	}
	for range 2 {
		stream, other, err := b.ensureStream(ctx, loc, b.newStreamConfig(loc))
		state := &stream.State
		if errors.Is(err, errNotAsked) {
			state, err = nil, nil
		} else if err == nil {
			err = b.checkReplaced(c, stream.Created)
		}
		if err != nil {
			return nil, err
		}
		if other != "" {
			notify(c, "stream "+loc.stream+" is used as it is, although "+other)
		}
		info, err := b.ensureConsumer(ctx, loc, c, n, state)
		if err == nil && state != nil {
			b.created.Store(c.Topic+"/"+c.Group, stream.Created)
		}
		if err == nil {
			b.remember(loc, stream.Config)
		}
		if !isCode(err, jetstream.JSErrCodeStreamNotFound) {
			return info, err
		}
		b.forget(loc.topic)
	}
	return nil, fmt.Errorf("%w: the stream is deleted again and again", backend.ErrGone)
}

// checkReplaced returns an error if the group is to start after a position, but its stream was
// created again since this backend last attached to the group. If another program created the
// new stream, its sequence may begin at 1, and the group would miss its first messages.
func (b *Backend) checkReplaced(c backend.Config, created time.Time) error {
	before, known := b.created.Load(c.Topic + "/" + c.Group)
	if _, after := c.Start.After(); !after || !known || before.(time.Time).Equal(created) {
		return nil
	}
	return fmt.Errorf("%w: to begin after a position of a stream that was deleted", backend.ErrRefused)
}

func notify(c backend.Config, text string) {
	if c.Notify != nil {
		c.Notify(backend.Notice{Topic: c.Topic, Group: c.Group, Text: "nats: " + text})
	}
}

// ensureConsumer creates or updates the consumer of a group in an existing stream. It raises
// the group's lease to c.Lease if necessary but never lowers it, so the lease is the longest
// of any member. stream is nil if it is not known.
func (b *Backend) ensureConsumer(ctx context.Context, loc *location, c backend.Config, n needs, stream *jetstream.StreamState) (*jetstream.ConsumerInfo, error) {
	want := jetstream.ConsumerConfig{
		Durable:       loc.consumer(c.Group),
		Description:   "group " + c.Group + " of an event bus",
		AckPolicy:     jetstream.AckExplicitPolicy,
		MaxDeliver:    -1,
		MaxAckPending: -1,
		MaxWaiting:    4096,
		ReplayPolicy:  jetstream.ReplayInstantPolicy,
	}
	n.adapt(&want)
	if loc.shared() {
		want.FilterSubject = loc.subject
	}
	if err := setStart(&want, c.Start, stream); err != nil {
		return nil, err
	}
	info := new(jetstream.ConsumerInfo)
	err := b.askRepeatedly(ctx, consumerInfo(loc, c.Group), nil, info)
	if isCode(err, jetstream.JSErrCodeConsumerNotFound) {
		err = b.newConsumer(ctx, loc, want, info)
		if !isCode(err, jetstream.JSErrCodeConsumerExists, jetstream.JSErrCodeConsumerAlreadyExists) {
			return info, err
		}
		err = b.askRepeatedly(ctx, consumerInfo(loc, c.Group), nil, info)
	}
	if err != nil {
		return nil, err
	}
	has := info.Config
	if drift := consumerDrift(loc, want, has); drift != "" {
		return nil, fmt.Errorf("%w: consumer %s: %s", backend.ErrRefused, want.Durable, drift)
	}
	if !n.adapt(&has) && has.MaxDeliver == -1 && has.MaxAckPending == -1 && len(has.BackOff) == 0 {
		return info, nil
	}
	has.MaxDeliver, has.MaxAckPending, has.BackOff = -1, -1, nil
	return info, b.putConsumer(ctx, loc, has, "update", nil)
}

func consumerInfo(loc *location, group string) string {
	return "CONSUMER.INFO." + loc.stream + "." + loc.consumer(group)
}

// newConsumer creates a consumer and waits until the server answers its pulls. It decodes the
// state of the consumer into info, unless info is nil.
func (a *api) newConsumer(ctx context.Context, loc *location, c jetstream.ConsumerConfig, info *jetstream.ConsumerInfo) error {
	if err := a.putConsumer(ctx, loc, c, "create", info); err != nil {
		return err
	}
	return a.awaitServed(ctx, outgoing{subject: a.pullSubject(loc, c.Durable), data: []byte("{")}) // not a valid pull, so it is always refused
}

// pullSubject returns the subject to which a member sends its pulls for a consumer.
func (a *api) pullSubject(loc *location, consumer string) string {
	return a.prefix + "CONSUMER.MSG.NEXT." + loc.stream + "." + consumer
}

// putConsumer creates or updates a consumer; action is "create" or "update". It decodes the
// state of the consumer into info, unless info is nil.
func (a *api) putConsumer(ctx context.Context, loc *location, c jetstream.ConsumerConfig, action string, info *jetstream.ConsumerInfo) error {
	verb := "CONSUMER.CREATE." + loc.stream + "." + c.Durable
	if c.FilterSubject != "" {
		verb += "." + c.FilterSubject
	}
	request := struct {
		Stream string                   `json:"stream_name"`
		Config jetstream.ConsumerConfig `json:"config"`
		Action string                   `json:"action"`
	}{loc.stream, c, action}
	if info == nil {
		return a.askRepeatedly(ctx, verb, request, nil)
	}
	return a.askRepeatedly(ctx, verb, request, info)
}

// consumerDrift lists the settings of a consumer that would break a promise and that an update
// cannot change. The list becomes an error, because the backend never deletes a consumer to
// change it.
func consumerDrift(loc *location, want, got jetstream.ConsumerConfig) string {
	var must differences
	must.compare("ack policy", want.AckPolicy, got.AckPolicy)
	must.compare("deliver subject", "", got.DeliverSubject)
	must.compare("headers only", false, got.HeadersOnly)
	if (want.InactiveThreshold > 0) != (got.InactiveThreshold > 0) { // one of them is ephemeral
		must.compare("inactive threshold", want.InactiveThreshold, got.InactiveThreshold)
	}
	must.compare("replay policy", want.ReplayPolicy, got.ReplayPolicy)
	must.compare("priority policy", want.PriorityPolicy, got.PriorityPolicy)
	filters := got.FilterSubjects
	if got.FilterSubject != "" {
		filters = append(filters, got.FilterSubject)
	}
	if ours := []string{loc.subject}; !slices.Equal(filters, ours) && (loc.shared() || len(filters) > 0) {
		must.compare("filter", ours, filters)
	}
	return must.String()
}

// setStart sets where a new consumer begins, and refuses a position beyond the end of the
// stream. For the end of the stream it uses the last sequence if it is known, because the
// server that leads the consumer may not know the newest messages yet.
func setStart(c *jetstream.ConsumerConfig, start backend.Start, stream *jetstream.StreamState) error {
	c.OptStartSeq, c.OptStartTime = 0, nil
	after, isAfter := start.After()
	at, isAt := start.At()
	switch {
	case start == backend.StartEarliest, isAt && at.Before(epoch):
		c.DeliverPolicy = jetstream.DeliverAllPolicy
		return nil
	case start == backend.StartLatest && stream == nil, isAt && at.After(forever):
		c.DeliverPolicy = jetstream.DeliverNewPolicy
		return nil
	case start == backend.StartLatest, isAt && stream != nil && (stream.Msgs == 0 || at.After(stream.LastTime)):
		c.OptStartSeq = stream.LastSeq + 1
	case isAt:
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &at
		return nil
	case isAfter:
		seq, err := parsePosition(after)
		if err != nil {
			return err
		}
		if stream != nil && seq > stream.LastSeq {
			return fmt.Errorf("%w: position %s is beyond the end of the stream, %s", backend.ErrRefused, after, position(stream.LastSeq))
		}
		c.OptStartSeq = seq + 1
	default:
		return fmt.Errorf("%w: start %q", backend.ErrRefused, start)
	}
	c.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
	return nil
}

// The server counts nanoseconds, so it knows no times before epoch or after forever.
var (
	epoch   = time.Unix(0, 0)
	forever = time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC)
)

// The consumer of an ephemeral group has an InactiveThreshold, after which the server deletes
// it, and a mark of each member in its metadata. The last member that closes deletes it.
const (
	ephemeralLeases = 10                 // the threshold, in leases; see backend.Config.Ephemeral
	memberKey       = "eventbus.member." // prefix of the mark of a member
	closeTimeout    = time.Second        // longest time for which Close waits for the server
	unusedSequence  = uint64(1)<<62 - 1  // a sequence that no message has
)

// needs are what a member needs of the consumer of its group.
type needs struct {
	lease time.Duration
	mark  string // key of its mark in the metadata; empty unless the group is ephemeral
}

// threshold returns the InactiveThreshold, which is 0 unless the group is ephemeral.
func (n needs) threshold() time.Duration {
	if n.mark == "" {
		return 0
	}
	return ephemeralLeases * n.lease
}

// adapt changes c to meet the needs. It never lowers a lease or a threshold.
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

// leave deletes the group of an ephemeral member that closes, if the member was the last one.
// If that fails, the server deletes the group later. leave also drops what the backend knows
// about the group, because there may be many ephemeral groups with names of their own.
func (s *source) leave(ctx context.Context) {
	b, loc := s.backend, s.loc
	b.created.Delete(loc.topic + "/" + s.config.Group)
	b.delayLimiter.forget(loc.topic, s.config.Group)
	b.maintainer.forgetGroup(loc.topic, s.config.Group)
	var info jetstream.ConsumerInfo
	err := b.ask(ctx, consumerInfo(loc, s.config.Group), nil, &info)
	if _, marked := info.Config.Metadata[s.needs.mark]; err == nil && marked {
		delete(info.Config.Metadata, s.needs.mark)
		if hasMembers(info.Config) {
			err = b.putConsumer(ctx, loc, info.Config, "update", nil)
		} else {
			err = b.deleteGroup(ctx, loc, s.config.Group)
		}
	}
	if err != nil && !errors.Is(classOf(ctx, err, false), backend.ErrGone) {
		notify(s.config, fmt.Sprintf("the group could not be deleted; the server deletes it once it has had no member for %v: %v", s.needs.threshold(), err))
	}
}

// hasMembers reports whether the consumer of an ephemeral group still has marks of members.
func hasMembers(c jetstream.ConsumerConfig) bool {
	for key := range c.Metadata {
		if strings.HasPrefix(key, memberKey) {
			return true
		}
	}
	return false
}

// heartbeat tells the server that the ephemeral group of a member is alive. Any
// acknowledgement counts as activity, so it sends one of a message that does not exist, which
// has no other effect.
func (s *source) heartbeat(ctx context.Context) error {
	subject := s.ackSubjects(1)(unusedSequence)
	m, err := s.backend.request(ctx, outgoing{subject: subject, data: progressBody}, false)
	if err == nil && isUnserved(m) {
		err = fmt.Errorf("%w: %s", backend.ErrUnavailable, unservedText)
	}
	return err
}
