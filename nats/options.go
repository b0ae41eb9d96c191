package nats

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// Options are the settings of a [Backend]. A zero field means its default.
type Options struct {
	// Namespace is the first token of every subject and the prefix of every stream name: the
	// subject of a topic is "<namespace>.<topic>". Buses with the same namespace share topics.
	// It must not contain dots. The default is "bus".
	Namespace string

	// Stream, if not empty, is the name of one stream for all topics, which then share its
	// limits. By default each topic has its own stream. In a shared stream, the names of a
	// topic and a group may have at most 254 bytes together.
	Stream string

	// Domain is the JetStream domain, for servers that reach JetStream over a leaf node.
	Domain string

	// APIPrefix replaces $JS.API at the beginning of the JetStream API's subjects. Use it in an
	// account that imports another account's API under a different name, for example
	// "JS.acme.API". The account must import $JS.ACK.> and the subjects of the topics under
	// their own names. APIPrefix cannot be combined with Domain.
	APIPrefix string

	// OnceWindow is how long the ID of a message with [backend.Message].Once is remembered. It
	// becomes the duplicate window of new streams; the default is 2 minutes. An existing
	// stream with a shorter window is refused.
	OnceWindow time.Duration

	// MaxBytes limits the size of each new stream. Zero means that only the limits of the
	// account and the server apply.
	//
	// Before Publish would exceed the limit of a topic's own stream, it purges messages that
	// every group has settled. If that is not enough, it refuses messages with
	// [backend.ErrFull] and drops none; a full account or server refuses them too. A topic
	// with settings of its own has their limits instead; see [Backend.Declare].
	//
	// JetStream reserves MaxBytes of storage for each stream, including the ones of
	// dead-letter topics. An account with max_bytes_required refuses new streams without a
	// limit.
	MaxBytes int64

	// MaxMessages limits the number of messages in each new stream. Zero means no limit.
	MaxMessages int64

	// Replicas and Storage are settings of new streams. The defaults are one replica and file
	// storage.
	Replicas int
	Storage  jetstream.StorageType

	// Topics overrides settings for single topics, by name. It cannot be combined with Stream.
	Topics map[string]TopicOptions
}

// TopicOptions are the settings of one topic. A zero field takes its value from the field of
// the same name in [Options].
type TopicOptions struct {
	OnceWindow time.Duration
	Replicas   int
	Storage    jetstream.StorageType // FileStorage is zero, so it cannot replace MemoryStorage
}

func (o Options) withDefaults() (Options, error) {
	o.Namespace = cmp.Or(o.Namespace, "bus")
	o.OnceWindow = cmp.Or(o.OnceWindow, 2*time.Minute)
	o.Replicas = cmp.Or(o.Replicas, 1)
	err := cmp.Or(checkToken("namespace", o.Namespace), checkToken("stream", o.Stream), checkToken("domain", o.Domain), checkSubjectPrefix("API prefix", o.APIPrefix))
	if err != nil {
		return o, err
	}
	if o.Domain != "" && o.APIPrefix != "" {
		return o, errors.New("a domain and an API prefix exclude each other")
	}
	if o.Stream != "" && len(o.Topics) > 0 {
		return o, errors.New("topics have no options of their own in one stream")
	}
	switch {
	case o.MaxBytes < 0:
		return o, errors.New("max bytes is negative")
	case o.MaxMessages < 0:
		return o, errors.New("max messages is negative")
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

// checkToken checks that name is empty, or valid and without a dot. The error calls the name
// by the word in what.
func checkToken(what, name string) error {
	if name == "" {
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

// checkSubjectPrefix checks that subject is empty, or can begin the subject of a message. The
// error calls it by the word in what.
func checkSubjectPrefix(what, subject string) error {
	bad := func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r >= 0x7f }
	if subject != "" && (slices.Contains(strings.Split(subject, "."), "") || strings.ContainsFunc(subject, bad)) {
		return fmt.Errorf("%s is not the beginning of a subject, such as JS.acme.API", what)
	}
	return nil
}

func (t TopicOptions) check() error {
	switch {
	case t.OnceWindow < 100*time.Millisecond:
		return fmt.Errorf("once window of %v is less than 100 ms", t.OnceWindow)
	case t.Replicas < 0:
		return errors.New("replicas is negative")
	}
	return nil
}

// of returns the settings of one topic, with those of o in place of zero fields.
func (o Options) of(topic string) TopicOptions {
	t := o.Topics[topic]
	return TopicOptions{
		OnceWindow: cmp.Or(t.OnceWindow, o.OnceWindow),
		Replicas:   cmp.Or(t.Replicas, o.Replicas),
		Storage:    cmp.Or(t.Storage, o.Storage),
	}
}
