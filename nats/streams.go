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

// ensureTopic creates a topic's stream if it is missing, and remembers that it exists. If this
// client has no permission to ask, it assumes that the stream exists.
func (b *Backend) ensureTopic(ctx context.Context, topic string) (*location, error) {
	if p, ok := b.known.Load(topic); ok {
		return p.(*location), nil
	}
	loc := b.locate(topic)
	info, _, err := b.ensureStream(ctx, loc, b.newStreamConfig(loc))
	if err != nil && !errors.Is(err, errNotAsked) {
		return nil, err
	}
	return b.remember(loc, info.Config), nil
}

// remember records that a topic's stream exists, and which bounds it has. c is empty if this
// client has no permission to ask for the stream.
func (b *Backend) remember(loc *location, c jetstream.StreamConfig) *location {
	known, _ := b.known.LoadOrStore(loc.topic, loc)
	loc = known.(*location)
	loc.capacity.setBounds(loc, c)
	return loc
}

// forget makes the next ensureTopic ask the server again.
func (b *Backend) forget(topic string) { b.known.Delete(topic) }

// errNotAsked means that this client has no permission to ask for streams.
var errNotAsked = fmt.Errorf("%w: to ask for the stream", backend.ErrDenied)

// ensureStream returns a topic's stream, and creates it with the settings want if it is
// missing. It refuses an existing stream whose settings would break a promise. other describes
// its harmless differences from want.
func (b *Backend) ensureStream(ctx context.Context, loc *location, want jetstream.StreamConfig) (info jetstream.StreamInfo, other string, err error) {
	for until := time.Now().Add(spreadTimeout); ; {
		err = b.askRepeatedly(ctx, "STREAM.INFO."+loc.stream, nil, &info)
		if errors.Is(err, backend.ErrDenied) {
			return info, "", fmt.Errorf("%w: %w", errNotAsked, err)
		}
		if isCode(err, jetstream.JSErrCodeStreamNotFound) {
			if err = b.askRepeatedly(ctx, "STREAM.CREATE."+loc.stream, want, &info); err == nil {
				err = b.awaitServed(ctx, neverStored(loc))
			}
		}
		// Another client may have created the stream with other settings. A cluster reports
		// that before it can show these settings.
		if !isCode(err, jetstream.JSErrCodeStreamNameInUse) || time.Now().After(until) || !sleep(ctx, nil, 10*time.Millisecond) {
			break
		}
	}
	if err != nil {
		return info, "", err
	}
	refused, harmless := drift(loc, want, info.Config)
	if len(refused) > 0 {
		return info, "", fmt.Errorf("%w: stream %s: %s", backend.ErrRefused, loc.stream, refused)
	}
	return info, harmless.String(), nil
}

// drift lists how a stream differs from what its topic should have.
func drift(loc *location, want, got jetstream.StreamConfig) (refused, harmless differences) {
	if _, declared, err := settingsOf(loc, got); err == nil && declared {
		want.MaxBytes, want.MaxMsgs = -1, -1 // the bounds in Options are for topics without settings
	}
	return streamDrift(want, got)
}

// newStreamConfig returns the settings of a new stream for a topic.
func (b *Backend) newStreamConfig(loc *location) jetstream.StreamConfig {
	o := b.options.of(loc.topic)
	c := jetstream.StreamConfig{
		Name:              loc.stream,
		Description:       "topic " + loc.topic + " of an event bus",
		Subjects:          []string{loc.subject},
		Retention:         jetstream.LimitsPolicy,
		Discard:           jetstream.DiscardNew,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        -1,
		MaxBytes:          -1,
		Replicas:          o.Replicas,
		Storage:           o.Storage,
		Duplicates:        o.OnceWindow,
		AllowDirect:       true,
		FirstSeq:          uint64(time.Now().UnixMicro()), // higher than any sequence of a deleted stream of this name
	}
	if b.options.MaxBytes > 0 {
		c.MaxBytes = b.options.MaxBytes
	}
	if b.options.MaxMessages > 0 {
		c.MaxMsgs = b.options.MaxMessages
	}
	if loc.shared() {
		c.Description = "topics of an event bus"
		c.Subjects = []string{b.options.Namespace + ".>"}
	}
	return c
}

// streamDrift compares a stream with the wanted settings. must lists differences that would
// break promises, may the harmless ones.
func streamDrift(want, got jetstream.StreamConfig) (must, may differences) {
	must.compare("subjects", want.Subjects, got.Subjects)
	must.compare("retention", want.Retention, got.Retention)
	must.compare("discard", want.Discard, got.Discard)
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
	may.compare("max age (the server removes a message that is older, even if a group has not got it)", want.MaxAge, got.MaxAge)
	may.compare("replicas", want.Replicas, got.Replicas)
	may.compare("storage", want.Storage, got.Storage)
	may.compare("persist mode (async: a crash of the server loses messages)", want.PersistMode, got.PersistMode)
	may.compare("deny delete (true: Remove is refused, and so are redrives)", false, got.DenyDelete)
	may.compare("message TTLs (true: a publisher may let its messages expire)", false, got.AllowMsgTTL)
	may.compare("rollups (true: a publisher may remove all messages)", false, got.AllowRollup)
	if want.MaxBytes > 0 { // a limit that nobody asked for does no harm
		may.compare("max bytes", want.MaxBytes, got.MaxBytes)
	}
	if want.MaxMsgs > 0 {
		may.compare("max messages", want.MaxMsgs, got.MaxMsgs)
	}
	return must, may
}

// differences lists settings that differ from the wanted ones. Each has a text such as
// "retention is WorkQueue, not Limits".
type differences []difference

type difference struct{ setting, want, text string }

// compare adds a difference, unless the values are equal. setting begins with the name of the
// setting; an explanation in parentheses may follow.
func (d *differences) compare(setting string, want, got any) {
	if w, g := fmt.Sprint(want), fmt.Sprint(got); w != g {
		name, _, _ := strings.Cut(setting, " (")
		*d = append(*d, difference{name, w, fmt.Sprintf("%s is %s, not %s", setting, g, w)})
	}
}

func (d differences) String() string {
	texts := make([]string, len(d))
	for i, one := range d {
		texts[i] = one.text
	}
	return strings.Join(texts, "; ")
}

// neverStored returns a message that the server always refuses, because it says that it is for
// a stream of another name. Sending it shows whether the client may publish to the topic.
func neverStored(loc *location) outgoing {
	return outgoing{subject: loc.subject, header: backend.Headers{{Name: jetstream.ExpectedStreamHeader, Value: "-"}}}
}

// state returns the state of a topic's stream. In a shared stream, Msgs is the number of
// messages of this topic, and the other fields describe the whole stream. If the topic does
// not exist, the error is ErrGone.
func (b *Backend) state(ctx context.Context, loc *location) (jetstream.StreamState, error) {
	var info jetstream.StreamInfo
	if !loc.shared() {
		err := b.askIdle(ctx, "STREAM.INFO."+loc.stream, &info)
		return info.State, err
	}
	err := b.ask(ctx, "STREAM.INFO."+loc.stream, map[string]string{"subjects_filter": loc.subject}, &info)
	if info.State.Msgs = info.State.Subjects[loc.subject]; info.State.Msgs > 0 || err != nil {
		return info.State, err
	}
	if _, declared, _ := settingsOf(loc, info.Config); declared {
		return info.State, nil
	}
	groups, err := b.groups(ctx, loc)
	if err == nil && len(groups) == 0 {
		err = fmt.Errorf("%w: the topic has no messages, groups or settings", backend.ErrGone)
	}
	return info.State, err
}

// askIdle is ask on the inbox of an idle requester, if there is one. It then costs the server
// one message in place of three.
func (b *Backend) askIdle(ctx context.Context, verb string, out any) (err error) {
	r, ok := b.requesters.TryGet()
	if !ok {
		return b.ask(ctx, verb, nil, out)
	}
	defer b.requesters.Put(r)
	defer r.end()
	r.begin(1)
	r.out[0] = outgoing{subject: b.prefix + verb}
	r.await(0)
	r.exchange(ctx, callOptions{silenceLimit: answerTimeout, onAnswer: func(_ int, m *natsgo.Msg, failure error) {
		if err = failure; err == nil {
			err = readAnswer(m, out)
		}
	}})
	return err
}
