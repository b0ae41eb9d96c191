package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var (
	_ backend.Remover = (*Backend)(nil)
	_ backend.Admin   = (*Backend)(nil)
)

// Topics implements [backend.Admin]. With [Options].Stream, a topic exists while it has
// messages, groups or settings.
func (b *Backend) Topics(ctx context.Context) ([]string, error) {
	return run(ctx, b, "topics", "", harmless, func(ctx context.Context) ([]string, error) {
		if b.options.Stream != "" {
			return b.subjects(ctx)
		}
		streams, err := b.names(ctx, "STREAM.NAMES")
		return mapNames(streams, b.topicOf), err
	})
}

// mapNames returns the sorted topics or groups of names. It leaves out names of another
// namespace, topic or program.
func mapNames(names []string, of func(string) (string, bool)) []string {
	var all []string
	for _, name := range names {
		if one, ok := of(name); ok {
			all = append(all, one)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// subjects lists the topics of the shared stream: topics with messages, by their subjects,
// topics with groups, by their consumers, and topics with settings.
func (b *Backend) subjects(ctx context.Context) ([]string, error) {
	consumers, err := b.names(ctx, "CONSUMER.NAMES."+b.options.Stream)
	if isCode(err, jetstream.JSErrCodeStreamNotFound) {
		return nil, nil
	}
	topics := mapNames(consumers, topicOfConsumer)
	before := b.options.Namespace + "."
	for offset, more := 0, true; err == nil && more; {
		var page struct {
			Total  int                    `json:"total"`
			State  jetstream.StreamState  `json:"state"`
			Config jetstream.StreamConfig `json:"config"`
		}
		err = b.ask(ctx, "STREAM.INFO."+b.options.Stream, map[string]any{"offset": offset, "subjects_filter": before + ">"}, &page)
		for subject := range page.State.Subjects {
			topics = append(topics, strings.TrimPrefix(subject, before))
		}
		topics = append(topics, mapNames(slices.Collect(maps.Keys(page.Config.Metadata)), topicOfSetting)...)
		offset += len(page.State.Subjects)
		more = len(page.State.Subjects) > 0 && offset < page.Total
	}
	slices.Sort(topics)
	return slices.Compact(topics), err
}

// Groups implements [backend.Admin].
func (b *Backend) Groups(ctx context.Context, topic string) ([]string, error) {
	return run(ctx, b, "groups", topic, harmless, func(ctx context.Context) ([]string, error) {
		loc := b.locate(topic)
		groups, err := b.groups(ctx, loc)
		if err == nil && len(groups) == 0 {
			_, err = b.state(ctx, loc)
		}
		return groups, err
	})
}

func (a *api) groups(ctx context.Context, loc *location) ([]string, error) {
	names, err := a.names(ctx, "CONSUMER.NAMES."+loc.stream)
	return mapNames(names, loc.group), err
}

// Remove implements [backend.Remover]. It makes one request for each message, many at a time.
func (b *Backend) Remove(ctx context.Context, topic string, positions []string) error {
	loc := b.locate(topic)
	err := b.call(ctx, "remove", topic, harmless, func(ctx context.Context) error {
		_, err := b.state(ctx, loc)
		return err
	})
	for some := range slices.Chunk(positions, maxParallel) {
		if err != nil {
			break
		}
		err = b.call(ctx, "remove", topic, effective, func(ctx context.Context) error {
			sequences := make([]uint64, len(some))
			for i, position := range some {
				var err error
				if sequences[i], err = parsePosition(position); err != nil {
					return err
				}
				b.maintainer.noteRemoved(topic, sequences[i])
			}
			return b.remove(ctx, loc, sequences)
		})
	}
	return err
}

// remove removes messages. In a shared stream it first asks for them, because a message of
// another topic may have the sequence.
func (b *Backend) remove(ctx context.Context, loc *location, sequences []uint64) error {
	isThere := func(seq uint64) (bool, error) {
		m, err := b.readOne(ctx, loc, seq)
		if isCode(err, jetstream.JSErrCodeMessageNotFound) {
			return false, nil
		}
		return m.Sequence == seq, err
	}
	if loc.shared() {
		records, err := b.readAll(ctx, loc, sequences)
		if err != nil {
			return err
		}
		sequences = nil
		for i := range records {
			if records[i].Subject == loc.subject {
				sequences = append(sequences, records[i].Sequence)
			}
		}
	}
	questions := make([]any, len(sequences))
	for i, seq := range sequences {
		questions[i] = map[string]any{"seq": seq, "no_erase": true}
	}
	errs := make([]error, len(questions))
	err := b.askAll(ctx, "STREAM.MSG.DELETE."+loc.stream, questions, func(i int, m *natsgo.Msg, err error) {
		if errs[i] = err; err == nil {
			errs[i] = readAnswer(m, nil)
		}
	})
	for i, e := range errs {
		if _, refused := errors.AsType[*jetstream.APIError](e); refused {
			if is, failure := isThere(sequences[i]); failure == nil && !is {
				errs[i] = nil // it had been removed already
			}
		}
	}
	return cmp.Or(err, cmp.Or(errs...))
}

// DeleteTopic implements [backend.Admin].
func (b *Backend) DeleteTopic(ctx context.Context, topic string) error {
	return b.call(ctx, "delete", topic, effective, func(ctx context.Context) error {
		loc := b.locate(topic)
		b.forget(topic)
		if !loc.shared() {
			return b.ask(ctx, "STREAM.DELETE."+loc.stream, nil, nil)
		}
		if _, err := b.state(ctx, loc); err != nil {
			return err
		}
		if err := b.ask(ctx, "STREAM.PURGE."+loc.stream, jetstream.StreamPurgeRequest{Subject: loc.subject}, nil); err != nil {
			return err
		}
		groups, err := b.groups(ctx, loc)
		if err != nil {
			return halfDone(err)
		}
		for _, group := range groups {
			err := b.deleteGroup(ctx, loc, group)
			if err != nil && !isCode(err, jetstream.JSErrCodeConsumerNotFound) {
				return halfDone(err)
			}
		}
		if err := b.removeSettings(ctx, loc); err != nil {
			return halfDone(err)
		}
		return nil
	})
}

// halfDone adds the class ErrUnknownOutcome to the error of a change that was made in part.
func halfDone(err error) error {
	return fmt.Errorf("%w: a part is done: %w", backend.ErrUnknownOutcome, err)
}

// DeleteGroup implements [backend.Admin].
func (b *Backend) DeleteGroup(ctx context.Context, topic, group string) error {
	return b.call(ctx, "delete", topic+"/"+group, effective, func(ctx context.Context) error {
		return b.deleteGroup(ctx, b.locate(topic), group)
	})
}

func (a *api) deleteGroup(ctx context.Context, loc *location, group string) error {
	return a.ask(ctx, "CONSUMER.DELETE."+loc.stream+"."+loc.consumer(group), nil, nil)
}

// ResetGroup implements [backend.Admin]. It deletes the consumer and creates it again. If it
// cannot create the consumer, the group is gone, and the error matches
// [backend.ErrUnknownOutcome]. A Receive that is waiting continues with the new consumer.
func (b *Backend) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	return b.call(ctx, "reset", topic+"/"+group, effective, func(ctx context.Context) error {
		loc := b.locate(topic)
		var info jetstream.ConsumerInfo
		if err := b.ask(ctx, consumerInfo(loc, group), nil, &info); err != nil {
			return err
		}
		state, err := b.state(ctx, loc)
		if err != nil {
			return err
		}
		if err := setStart(&info.Config, start, &state); err != nil {
			return err
		}
		delete(info.Config.Metadata, settledKey) // deliveries are numbered from 1 again
		return b.holdPurges(ctx, loc, &info, func() error {
			if err := b.deleteGroup(ctx, loc, group); err != nil {
				return err
			}
			if err := b.newConsumer(ctx, loc, info.Config, nil); err != nil {
				return fmt.Errorf("the group was deleted and could not be created again: %w", halfDone(err))
			}
			for _, s := range b.members.of(topic, group) { // members in other processes notice it when they next check
				s.settledByOperators.reset()
			}
			return nil
		})
	})
}

// holdPurges calls f, and until f returns keeps every process from purging messages that the
// group has not settled. To do so, it creates another consumer with the group's progress, and
// deletes it after f. If that fails, the server deletes the consumer after holdTimeout.
func (b *Backend) holdPurges(ctx context.Context, loc *location, group *jetstream.ConsumerInfo, f func() error) error {
	name := loc.prefix + holdPrefix + strings.TrimPrefix(natsgo.NewInbox(), natsgo.InboxPrefix)
	err := b.putConsumer(ctx, loc, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: group.Config.FilterSubject, AckPolicy: jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: group.AckFloor.Stream + 1, InactiveThreshold: holdTimeout,
	}, "create", nil)
	if err != nil {
		return err
	}
	err = f()
	_ = b.ask(ctx, "CONSUMER.DELETE."+loc.stream+"."+name, nil, nil)
	return err
}

const (
	holdPrefix  = "=" // begins the names of holdPurges' consumers; no group has such a name
	holdTimeout = time.Minute
)

// Stats implements [backend.Statser]. JetStream does not count members and does not tell held
// messages from delayed ones, so Stats.Members is always [backend.Unknown], and InFlight and
// Delayed are Unknown unless both are zero.
func (b *Backend) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	return run(ctx, b, "stats", topic+"/"+group, harmless, func(ctx context.Context) (backend.Stats, error) {
		return b.stats(ctx, b.locate(topic), group)
	})
}

func (b *Backend) stats(ctx context.Context, loc *location, group string) (s backend.Stats, err error) {
	state, err := b.state(ctx, loc)
	if err != nil {
		return s, err
	}
	var info jetstream.ConsumerInfo
	if err := b.ask(ctx, consumerInfo(loc, group), nil, &info); err != nil {
		return s, err
	}
	s.Depth = int64(state.Msgs)
	s.Lag = int64(max(info.NumPending, unread(loc, state, info.Delivered.Stream)))
	s.Members, s.Unacked = backend.Unknown, int64(info.NumAckPending)
	if s.Unacked > 0 {
		s.InFlight, s.Delayed = backend.Unknown, backend.Unknown
	}
	if s.Lag == 0 && s.Unacked == 0 {
		return s, nil
	}
	m, err := b.readOne(ctx, loc, info.AckFloor.Stream+1)
	if isCode(err, jetstream.JSErrCodeMessageNotFound) { // all have been removed, for example by a maximum age
		s.Lag, s.Unacked, s.InFlight, s.Delayed = 0, 0, 0, 0
		return s, nil
	}
	s.Oldest = m.Time
	return s, err
}

// unread returns how many messages of a stream follow the last delivered one. The consumer's own
// count may be too low, because the consumer hears of stored messages a moment later. unread
// returns 0 if the stream is shared or has gaps.
func unread(loc *location, state jetstream.StreamState, delivered uint64) uint64 {
	if loc.shared() || state.Msgs == 0 || state.NumDeleted > 0 {
		return 0
	}
	delivered = max(delivered, state.FirstSeq-1)
	return max(state.LastSeq, delivered) - delivered
}
