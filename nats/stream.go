package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// ensure makes sure of a topic's stream, once. Where this client may not ask for
// it, it is taken to be there.
func (b *Backend) ensure(ctx context.Context, topic string) (*place, error) {
	if p, ok := b.known.Load(topic); ok {
		return p.(*place), nil
	}
	p := b.place(topic)
	if _, err := b.stream(ctx, p); err != nil && !errors.Is(err, errNotAsked) {
		return nil, err
	}
	b.known.Store(topic, p)
	return p, nil
}

// forget makes ensure look again.
func (b *Backend) forget(topic string) { b.known.Delete(topic) }

// errNotAsked is the error of stream when this client may not ask for streams.
var errNotAsked = fmt.Errorf("%w: to ask for the stream", backend.ErrDenied)

// stream looks for a topic's stream, and creates it if there is none. One that
// is there is taken as it is, unless a promise would not hold with it.
func (b *Backend) stream(ctx context.Context, p *place) (has, error) {
	want := b.wanted(p)
	var info jetstream.StreamInfo
	err := b.ask(ctx, "STREAM.INFO."+p.stream, nil, &info)
	if errors.Is(err, backend.ErrDenied) {
		return has{}, fmt.Errorf("%w: %w", errNotAsked, err)
	}
	if isCode(err, jetstream.JSErrCodeStreamNotFound) {
		if err = b.ask(ctx, "STREAM.CREATE."+p.stream, want, &info); err == nil {
			err = b.awaitServed(ctx, &natsgo.Msg{Subject: p.subject, Header: natsgo.Header{jetstream.ExpectedStreamHeader: {"-"}}}) // which is refused
		}
		if isCode(err, jetstream.JSErrCodeStreamNameInUse) { // with other settings: somebody was faster
			err = b.ask(ctx, "STREAM.INFO."+p.stream, nil, &info)
		}
	}
	if err != nil {
		return has{}, err
	}
	refused, other := streamDrift(want, info.Config)
	if refused != "" {
		return has{}, fmt.Errorf("%w: stream %s: %s", backend.ErrRefused, p.stream, refused)
	}
	return has{info.Created, info.State, other}, nil
}

// A has is what a stream is found to have.
type has struct {
	created time.Time
	state   jetstream.StreamState
	other   string // in what it differs from the options, if that does no harm
}

// wanted is what a new stream for a topic is made with.
func (b *Backend) wanted(p *place) jetstream.StreamConfig {
	o := b.options.of(p.topic)
	c := jetstream.StreamConfig{
		Name:              p.stream,
		Description:       "topic " + p.topic + " of an event bus",
		Subjects:          []string{p.subject},
		Retention:         jetstream.LimitsPolicy,
		Discard:           jetstream.DiscardNew,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        -1,
		MaxBytes:          o.MaxBytes,
		Replicas:          o.Replicas,
		Storage:           o.Storage,
		Duplicates:        o.OnceWindow,
		AllowDirect:       true,
	}
	if o.MaxMessages > 0 {
		c.MaxMsgs = o.MaxMessages
	}
	if p.shared() {
		c.Description = "topics of an event bus"
		c.Subjects = []string{b.options.Namespace + ".>"}
	}
	return c
}

// streamDrift says in what a stream differs from what it must be, with which
// promises would be broken, and in what else.
func streamDrift(want, got jetstream.StreamConfig) (refused, other string) {
	var must, may differences
	must.compare("subjects", want.Subjects, got.Subjects)
	must.compare("retention", want.Retention, got.Retention)
	must.compare("discard", want.Discard, got.Discard)
	must.compare("max age", want.MaxAge, got.MaxAge)
	must.compare("no ack", false, got.NoAck)
	must.compare("sealed", false, got.Sealed)
	must.compare("deny purge", false, got.DenyPurge)
	must.compare("mirror", false, got.Mirror != nil)
	must.compare("sources", 0, len(got.Sources))
	must.compare("subject transform", false, got.SubjectTransform != nil)
	if got.MaxMsgsPerSubject > 0 && !got.DiscardNewPerSubject {
		must.compare("max messages per subject", -1, got.MaxMsgsPerSubject)
	}
	if got.Duplicates < want.Duplicates {
		must.compare("duplicate window", want.Duplicates, got.Duplicates)
	}
	may.compare("replicas", want.Replicas, got.Replicas)
	may.compare("storage", want.Storage, got.Storage)
	may.compare("max bytes", want.MaxBytes, got.MaxBytes)
	may.compare("max messages", want.MaxMsgs, got.MaxMsgs)
	return must.String(), may.String()
}

// differences are lines such as "retention is WorkQueue, must be Limits".
type differences []string

func (d *differences) compare(what string, want, got any) {
	if w, g := fmt.Sprint(want), fmt.Sprint(got); w != g {
		*d = append(*d, fmt.Sprintf("%s is %s, not %s", what, g, w))
	}
}

func (d differences) String() string { return strings.Join(d, "; ") }

// Declare implements [backend.Declarer].
func (b *Backend) Declare(ctx context.Context, topic string) error {
	return b.call(ctx, "declare", topic, func(ctx context.Context) error {
		_, err := b.ensure(ctx, topic)
		return err
	})
}
