package nats

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Declarer = (*Backend)(nil)

// The settings of a topic are in the metadata of its stream, by these keys. In a shared
// stream the topic follows the key, such as "eventbus.keep.shop.orders". The bounds are also
// the stream's own max_msgs and max_bytes, by which the server refuses messages.
const (
	keepKey     = "eventbus.keep"         // a duration, such as "24h0m0s"
	messagesKey = "eventbus.max_messages" // a number
	bytesKey    = "eventbus.max_bytes"    // a number
)

// key returns the name of a setting of a topic in the metadata of the stream.
func (p *place) key(setting string) string {
	if p.shared() {
		return setting + "." + p.topic
	}
	return setting
}

// settingsOf reads the settings of a topic from its stream. declared means that there are
// some.
func settingsOf(p *place, c jetstream.StreamConfig) (s backend.TopicSettings, declared bool, err error) {
	for setting, read := range map[string]func(text string) error{
		keepKey:     func(text string) (err error) { s.Keep, err = time.ParseDuration(text); return err },
		messagesKey: func(text string) (err error) { s.MaxMessages, err = strconv.ParseInt(text, 10, 64); return err },
		bytesKey:    func(text string) (err error) { s.MaxBytes, err = strconv.ParseInt(text, 10, 64); return err },
	} {
		text, ok := c.Metadata[p.key(setting)]
		if !ok {
			continue
		}
		declared = true
		if err := read(text); err != nil {
			return s, true, fmt.Errorf("%w: stream %s: metadata %s: %w", backend.ErrRefused, p.stream, p.key(setting), err)
		}
	}
	return s, declared, nil
}

// set replaces the settings of a topic in the metadata of its stream. It returns the metadata,
// which are new.
func (p *place) set(metadata map[string]string, s backend.TopicSettings) map[string]string {
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	put := func(setting string, is bool, text string) {
		delete(metadata, p.key(setting))
		if is {
			metadata[p.key(setting)] = text
		}
	}
	put(keepKey, s.Keep > 0, s.Keep.String())
	put(messagesKey, s.MaxMessages > 0, strconv.FormatInt(s.MaxMessages, 10))
	put(bytesKey, s.MaxBytes > 0, strconv.FormatInt(s.MaxBytes, 10))
	return metadata
}

// topicOfSetting returns the topic of which a key in the metadata of a shared stream has a
// setting.
func topicOfSetting(key string) (topic string, ok bool) {
	for _, setting := range []string{keepKey, messagesKey, bytesKey} {
		if topic, ok = strings.CutPrefix(key, setting+"."); ok {
			return topic, true
		}
	}
	return "", false
}

// Declare implements [backend.Declarer]. To learn whether the client may publish, it sends a
// message that is never stored.
func (b *Backend) Declare(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
	if err := b.Limits().Settings.Check(d.Settings); err != nil {
		return backend.TopicSettings{}, failure(b.closed.Load(), "declare", topic, err)
	}
	return run(ctx, b, "declare", topic, effective, func(ctx context.Context) (backend.TopicSettings, error) {
		b.forget(topic) // the stream may be deleted
		p := b.place(topic)
		s, err := declare(ctx, &b.broker, p, d)
		if err == nil {
			_, err = b.request(ctx, neverStored(p), false)
		}
		return s, err
	})
}

// declare creates the stream of a topic with the settings of d, or stores these settings if
// the stream has none. It returns the settings in force.
func declare(ctx context.Context, b *broker, p *place, d backend.Declaration) (has backend.TopicSettings, err error) {
	want := b.wanted(p)
	want.MaxMsgs, want.MaxBytes = cmp.Or(d.Settings.MaxMessages, want.MaxMsgs), cmp.Or(d.Settings.MaxBytes, want.MaxBytes)
	want.Metadata = p.set(nil, d.Settings)
	look := func() (done bool, err error) {
		info, _, err := b.stream(ctx, p, want)
		if err != nil && (d != backend.Declaration{} || !errors.Is(err, errNotAsked)) {
			return false, err
		}
		b.know(p, info.Config)
		declared := false
		if has, declared, err = settingsOf(p, info.Config); err != nil && d.Replace {
			return false, nil // Replace also replaces settings that cannot be read
		}
		return has == d.Settings || !d.Replace && (declared || d.Settings == backend.TopicSettings{}), err
	}
	if done, err := look(); done || err != nil {
		return has, err
	}
	err = b.alone(ctx, p, func() error {
		if done, err := look(); done || err != nil {
			return err
		}
		has = d.Settings
		return b.changeStream(ctx, p, func(c *changed) {
			c.Metadata = p.set(c.Metadata, d.Settings)
			if !p.shared() {
				c.MaxMsgs, c.MaxBytes = want.MaxMsgs, want.MaxBytes
			}
		})
	})
	b.forget(p.topic) // the stream may have other bounds
	return has, err
}

// alone calls f while no other process is in its alone for the same stream. The lock is a
// consumer, because only one process can create it. If the process dies, the server deletes it.
func (a *api) alone(ctx context.Context, p *place, f func() error) error {
	lock := jetstream.ConsumerConfig{
		Durable: lockName, Description: rand.Text(), AckPolicy: jetstream.AckExplicitPolicy, // other text, so another consumer
		InactiveThreshold: lockFor, Replicas: 1, MemoryStorage: true,
	}
	for {
		err := a.putConsumer(ctx, p, lock, "create", nil)
		if err == nil {
			break
		}
		if !isCode(err, jetstream.JSErrCodeConsumerExists, jetstream.JSErrCodeConsumerAlreadyExists) {
			return err
		}
		if !sleep(ctx, nil, 20*time.Millisecond) {
			return fmt.Errorf("%w: another process changes the settings of the stream: %w", backend.ErrUnavailable, ctx.Err())
		}
	}
	err := f()
	_ = a.ask(ctx, "CONSUMER.DELETE."+p.stream+"."+lockName, nil, nil)
	return err
}

const (
	lockName = probeMark + "declare"
	lockFor  = 5 * time.Second
)

// changed are the settings of a stream that changeStream may change.
type changed struct {
	Metadata map[string]string `json:"metadata"`
	MaxMsgs  int64             `json:"max_msgs"`
	MaxBytes int64             `json:"max_bytes"`
}

// changeStream reads the settings of a stream, and sends all of them back with a change,
// because an update replaces all settings. It also sends settings that this program does not
// know.
func (a *api) changeStream(ctx context.Context, p *place, change func(c *changed)) error {
	var info struct {
		Config json.RawMessage `json:"config"`
	}
	if err := a.ask(ctx, "STREAM.INFO."+p.stream, nil, &info); err != nil {
		return err
	}
	var c changed
	all := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(info.Config, &all), json.Unmarshal(info.Config, &c)); err != nil {
		return err
	}
	change(&c)
	text, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(text, &all) // replaces the changed ones
	}
	if err != nil {
		return err
	}
	return a.ask(ctx, "STREAM.UPDATE."+p.stream, all, nil)
}

// unset removes the settings of a deleted topic from its shared stream.
func (a *api) unset(ctx context.Context, p *place) error {
	var info jetstream.StreamInfo
	err := a.ask(ctx, "STREAM.INFO."+p.stream, nil, &info)
	if err != nil {
		return err
	}
	if _, declared, _ := settingsOf(p, info.Config); !declared {
		return nil
	}
	return a.alone(ctx, p, func() error {
		return a.changeStream(ctx, p, func(c *changed) { c.Metadata = p.set(c.Metadata, backend.TopicSettings{}) })
	})
}
