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

// settingKey returns the metadata key of a topic's setting.
func (loc *location) settingKey(setting string) string {
	if loc.shared() {
		return setting + "." + loc.topic
	}
	return setting
}

// settingsOf reads the settings of a topic from its stream. declared is false if the topic has
// none.
func settingsOf(loc *location, c jetstream.StreamConfig) (s backend.TopicSettings, declared bool, err error) {
	for setting, read := range map[string]func(text string) error{
		keepKey:     func(text string) (err error) { s.Keep, err = time.ParseDuration(text); return err },
		messagesKey: func(text string) (err error) { s.MaxMessages, err = strconv.ParseInt(text, 10, 64); return err },
		bytesKey:    func(text string) (err error) { s.MaxBytes, err = strconv.ParseInt(text, 10, 64); return err },
	} {
		text, ok := c.Metadata[loc.settingKey(setting)]
		if !ok {
			continue
		}
		declared = true
		if err := read(text); err != nil {
			return s, true, fmt.Errorf("%w: stream %s: metadata %s: %w", backend.ErrRefused, loc.stream, loc.settingKey(setting), err)
		}
	}
	return s, declared, nil
}

// withSettings returns a copy of a stream's metadata in which s are the settings of the topic.
func (loc *location) withSettings(metadata map[string]string, s backend.TopicSettings) map[string]string {
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	put := func(setting string, is bool, text string) {
		delete(metadata, loc.settingKey(setting))
		if is {
			metadata[loc.settingKey(setting)] = text
		}
	}
	put(keepKey, s.Keep > 0, s.Keep.String())
	put(messagesKey, s.MaxMessages > 0, strconv.FormatInt(s.MaxMessages, 10))
	put(bytesKey, s.MaxBytes > 0, strconv.FormatInt(s.MaxBytes, 10))
	return metadata
}

// topicOfSetting returns the topic of a setting in the metadata of a shared stream.
func topicOfSetting(key string) (topic string, ok bool) {
	for _, setting := range []string{keepKey, messagesKey, bytesKey} {
		if topic, ok = strings.CutPrefix(key, setting+"."); ok {
			return topic, true
		}
	}
	return "", false
}

// Declare implements [backend.Declarer]. To find out whether the client may publish, it sends a
// message that is never stored.
func (b *Backend) Declare(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
	if err := b.Limits().Settings.Check(d.Settings); err != nil {
		return backend.TopicSettings{}, failure(b.closed.Load(), "declare", topic, err)
	}
	return run(ctx, b, "declare", topic, effective, func(ctx context.Context) (backend.TopicSettings, error) {
		b.forget(topic) // the stream may have been deleted
		loc := b.locate(topic)
		s, err := b.declare(ctx, loc, d)
		if err == nil {
			_, err = b.request(ctx, neverStored(loc), false)
		}
		return s, err
	})
}

// declare creates the stream of a topic with the settings of d, or stores them in a stream
// that has none. It returns the settings in force.
func (b *Backend) declare(ctx context.Context, loc *location, d backend.Declaration) (has backend.TopicSettings, err error) {
	want := b.newStreamConfig(loc)
	want.MaxMsgs, want.MaxBytes = cmp.Or(d.Settings.MaxMessages, want.MaxMsgs), cmp.Or(d.Settings.MaxBytes, want.MaxBytes)
	want.Metadata = loc.withSettings(nil, d.Settings)
	look := func() (done bool, err error) {
		info, _, err := b.ensureStream(ctx, loc, want)
		if err != nil && (d != backend.Declaration{} || !errors.Is(err, errNotAsked)) {
			return false, err
		}
		b.remember(loc, info.Config)
		declared := false
		if has, declared, err = settingsOf(loc, info.Config); err != nil && d.Replace {
			return false, nil // Replace overwrites even settings that cannot be read
		}
		return has == d.Settings || !d.Replace && (declared || d.Settings == backend.TopicSettings{}), err
	}
	if done, err := look(); done || err != nil {
		return has, err
	}
	err = b.withLock(ctx, loc, func() error {
		if done, err := look(); done || err != nil {
			return err
		}
		has = d.Settings
		return b.updateStream(ctx, loc, func(c *mutableConfig) {
			c.Metadata = loc.withSettings(c.Metadata, d.Settings)
			if !loc.shared() {
				c.MaxMsgs, c.MaxBytes = want.MaxMsgs, want.MaxBytes
			}
		})
	})
	b.forget(loc.topic) // the bounds may have changed
	return has, err
}

// withLock calls f while no other process is in withLock for the same stream. The lock is a
// consumer, because only one process can create it, and the server deletes it if the process
// dies. An update of a stream has no condition that could serve instead.
func (a *api) withLock(ctx context.Context, loc *location, f func() error) error {
	lock := jetstream.ConsumerConfig{
		Durable: lockName, Description: rand.Text(), AckPolicy: jetstream.AckExplicitPolicy, // makes the consumer differ from any other process's
		InactiveThreshold: lockTimeout, Replicas: 1, MemoryStorage: true,
	}
	for {
		err := a.putConsumer(ctx, loc, lock, "create", nil)
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
	_ = a.ask(ctx, "CONSUMER.DELETE."+loc.stream+"."+lockName, nil, nil)
	return err
}

const (
	lockName    = probePrefix + "declare"
	lockTimeout = 5 * time.Second
)

// mutableConfig are the settings of a stream that updateStream can change.
type mutableConfig struct {
	Metadata map[string]string `json:"metadata"`
	MaxMsgs  int64             `json:"max_msgs"`
	MaxBytes int64             `json:"max_bytes"`
}

// updateStream changes some settings of a stream. An update replaces all settings, so it reads
// them first and sends them back, including those that this program does not know.
func (a *api) updateStream(ctx context.Context, loc *location, change func(c *mutableConfig)) error {
	var info struct {
		Config json.RawMessage `json:"config"`
	}
	if err := a.ask(ctx, "STREAM.INFO."+loc.stream, nil, &info); err != nil {
		return err
	}
	var c mutableConfig
	all := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(info.Config, &all), json.Unmarshal(info.Config, &c)); err != nil {
		return err
	}
	change(&c)
	text, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(text, &all) // overwrites the changed ones
	}
	if err != nil {
		return err
	}
	return a.ask(ctx, "STREAM.UPDATE."+loc.stream, all, nil)
}

// removeSettings removes the settings of a deleted topic from the shared stream.
func (a *api) removeSettings(ctx context.Context, loc *location) error {
	var info jetstream.StreamInfo
	err := a.ask(ctx, "STREAM.INFO."+loc.stream, nil, &info)
	if err != nil {
		return err
	}
	if _, declared, _ := settingsOf(loc, info.Config); !declared {
		return nil
	}
	return a.withLock(ctx, loc, func() error {
		return a.updateStream(ctx, loc, func(c *mutableConfig) { c.Metadata = loc.withSettings(c.Metadata, backend.TopicSettings{}) })
	})
}
