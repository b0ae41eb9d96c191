package nats

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// Options are the settings of a [Backend]. A zero field means its default.
type Options struct {
	// Namespace begins every subject and stream: subject "<namespace>.<topic>".
	// It is one token; the default is "bus".
	Namespace string

	// Stream, if set, names one stream that all topics share, with its limits. Otherwise
	// each topic has a stream of its own. In a shared stream the names of a topic and a
	// group have at most 254 bytes together.
	Stream string

	// Domain is the JetStream domain, for servers that reach JetStream over a leaf node.
	Domain string

	// OnceWindow is how long [backend.Message].Once remembers an ID: the duplicate window of
	// new streams. 2 minutes if zero. A stream with a shorter window is refused.
	OnceWindow time.Duration

	// MaxBytes bounds each new stream. 256 MiB if zero. A full stream refuses messages
	// with [backend.ErrFull] until the messages settled by every group are purged.
	// JetStream reserves this much storage for each stream, dead-letter topics included;
	// an unbounded stream would fill the disk.
	MaxBytes int64

	// MaxMessages bounds each new stream by its number of messages. No bound if zero.
	MaxMessages int64

	// Replicas and Storage apply to new streams. One replica in files if zero.
	Replicas int
	Storage  jetstream.StorageType

	// Topics overrides these options for single topics. A zero field takes the value
	// above. It cannot be combined with Stream.
	Topics map[string]TopicOptions
}

// TopicOptions are the settings of one topic.
type TopicOptions struct {
	OnceWindow  time.Duration
	MaxBytes    int64
	MaxMessages int64
	Replicas    int
	Storage     jetstream.StorageType
}

func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" {
		o.Namespace = "bus"
	}
	if o.OnceWindow == 0 {
		o.OnceWindow = 2 * time.Minute
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMax
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	for _, check := range []error{
		token("namespace", o.Namespace, false), token("stream", o.Stream, true), token("domain", o.Domain, true),
	} {
		if check != nil {
			return o, check
		}
	}
	if o.Stream != "" && len(o.Topics) > 0 {
		return o, errors.New("topics have no options of their own in one stream")
	}
	for _, topic := range append(slices.Sorted(maps.Keys(o.Topics)), "") {
		if err := o.of(topic).check(); err != nil {
			if topic != "" {
				err = fmt.Errorf("topic %s: %w", topic, err)
			}
			return o, err
		}
	}
	return o, nil
}

// token checks that a name is valid and has no dot.
func token(what, name string, optional bool) error {
	if name == "" && optional {
		return nil
	}
	if err := backend.CheckName(name); err != nil {
		return fmt.Errorf("%s %w", what, err)
	}
	if dotless(name) != name {
		return fmt.Errorf("%s %q has a dot", what, name)
	}
	return nil
}

func (t TopicOptions) check() error {
	switch {
	case t.OnceWindow < 100*time.Millisecond:
		return fmt.Errorf("once window of %v is less than 100 ms", t.OnceWindow)
	case t.MaxBytes < 0:
		return errors.New("max bytes is negative")
	case t.MaxMessages < 0:
		return errors.New("max messages is negative")
	case t.Replicas < 0:
		return errors.New("replicas is negative")
	}
	return nil
}

// of returns the options of one topic, defaults filled in.
func (o Options) of(topic string) TopicOptions {
	t := o.Topics[topic]
	if t.OnceWindow == 0 {
		t.OnceWindow = o.OnceWindow
	}
	if t.MaxBytes == 0 {
		t.MaxBytes = o.MaxBytes
	}
	if t.MaxMessages == 0 {
		t.MaxMessages = o.MaxMessages
	}
	if t.Replicas == 0 {
		t.Replicas = o.Replicas
	}
	if t.Storage == 0 {
		t.Storage = o.Storage
	}
	return t
}
