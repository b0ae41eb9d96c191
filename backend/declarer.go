package backend

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// A Declarer is a [Backend] that can create a topic ahead of its first message, and store
// settings of the topic.
type Declarer interface {
	// Declare creates topic if it does not exist. A backend may leave the creation to Publish,
	// and only check the permission. Declare returns [ErrDenied] if this client may not publish
	// to the topic. The bus declares dead-letter topics, so that Subscribe reports a missing
	// permission before the first dead letter.
	//
	// Declare returns the settings in force, which every process sees. The settings of d are stored
	// if the topic has none, or if d.Replace is set; Declare then creates the topic. A setting that the backend does not support
	// by [Limits].Settings is refused with [errors.ErrUnsupported], and changes nothing. A negative
	// setting is refused with [ErrRefused].
	Declare(ctx context.Context, topic string, d Declaration) (TopicSettings, error)
}

// A Declaration says how to declare a topic. The zero Declaration only creates the topic.
type Declaration struct {
	Settings TopicSettings
	Replace  bool // store Settings even if the topic has others; zero Settings remove them
}

// TopicSettings are settings of one topic, which the broker stores. They end with the topic.
type TopicSettings struct {
	// Keep is how long a message stays after it was stored, by the clock of the broker, even if
	// every group has settled it. New groups, ResetGroup and Read get it. Later it may go at any
	// time. Zero: a settled message may go at once. A message that a group has not settled
	// stays, however old it is.
	Keep time.Duration

	// MaxMessages and MaxBytes bound the messages of the topic, kept ones included. MaxBytes counts
	// Message.Size, or as the broker counts. Before Publish exceeds a bound, it removes messages that every group has
	// settled, the oldest first. If that is not enough, it returns [ErrFull] for the messages
	// that do not fit. Zero: no bound besides the bounds of the backend.
	MaxMessages, MaxBytes int64
}

// String returns the settings as a text, such as "Keep 24h0m0s, MaxMessages 1000", or "none".
func (s TopicSettings) String() string {
	var parts []string
	if s.Keep > 0 {
		parts = append(parts, "Keep "+s.Keep.String())
	}
	if s.MaxMessages > 0 {
		parts = append(parts, fmt.Sprintf("MaxMessages %d", s.MaxMessages))
	}
	if s.MaxBytes > 0 {
		parts = append(parts, fmt.Sprintf("MaxBytes %d", s.MaxBytes))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// Declare calls [Declarer].Declare of b. If b is no Declarer the error matches
// [errors.ErrUnsupported].
func Declare(ctx context.Context, b Backend, topic string, d Declaration) (TopicSettings, error) {
	if declarer, ok := As[Declarer](b); ok {
		return declarer.Declare(ctx, topic, d)
	}
	return TopicSettings{}, missing("declare a topic")
}

// DeclareGroup makes a topic and a group of it that begins at start, unless the group exists.
// The topic then keeps messages for the group before its first member attaches. The caller has
// checked both names with [CheckName].
func DeclareGroup(ctx context.Context, b Backend, topic, group string, start Start) error {
	const lease = 100 * time.Millisecond // short, because only the leases of members count
	src, err := b.Attach(ctx, Config{Topic: topic, Group: group, Start: start, Lease: lease})
	if err != nil {
		return err
	}
	return src.Close()
}
