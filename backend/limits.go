package backend

import (
	"fmt"
	"time"
)

// A Limited is a [Backend] that states its [Limits]. A Backend that does not implement
// Limited has the zero Limits.
type Limited interface {
	Limits() Limits
}

// Limits are facts about a backend. They do not change while it is open.
type Limits struct {
	Batch      int           // most items in one Publish, Ack, Delay or Extend; 0: no limit
	Payload    int           // largest Message.Size in bytes; 0: not known
	Delay      time.Duration // longest Delayed.For; 0: no limit
	OnceWindow time.Duration // how long Message.Once remembers an ID; 0: Once has no effect
	Refund     bool          // Delayed.Refund works; otherwise each delivery is an attempt

	// LooseAcks means that Ack without Config.ConfirmAcks returns when the acknowledgement
	// is sent, before the broker has confirmed it.
	LooseAcks bool

	// FencedAcks means that Ack with Config.ConfirmAcks returns [ErrLeaseLost] to a member
	// that is no longer the holder.
	FencedAcks bool

	// Instances means that Attach replaces the members of an earlier incarnation of its
	// [Config].Instance.
	Instances bool

	// Positions means that Publish stores a message at its [Message].AtPosition.
	Positions bool

	// Receivers is the most members of one subscription with many topics that should wait in
	// Receive at the same time, because each needs a connection. Zero means any number.
	Receivers int

	// Settings are the settings of topics that Declare stores and the backend obeys.
	Settings Supported

	// Ephemeral means that [Config].Ephemeral works.
	Ephemeral bool

	// Publishers is the number of calls of Publish that the bus makes at the same time,
	// because more would not be faster. Zero means 4. A store with one writer states 1. Calls
	// that have not returned after 100 ms do not count, so that a part of the broker that
	// hangs does not hold up the rest. Then up to 17 times as many may be under way. A negative number means any number, and that Publish never waits. The bus then neither
	// joins concurrent calls into one, nor applies its Options.PublishTimeout to a call. So
	// a wrapper whose Publish waits must state 0, even if it wraps such a backend.
	Publishers int
}

// Supported says which settings of [TopicSettings] a backend supports.
type Supported struct{ Keep, MaxMessages, MaxBytes bool }

// Check returns an error if a setting of t is negative, or not supported.
func (s Supported) Check(t TopicSettings) error {
	switch {
	case t.Keep < 0, t.MaxMessages < 0, t.MaxBytes < 0:
		return fmt.Errorf("%w: a setting of a topic is negative", ErrRefused)
	case t.Keep > 0 && !s.Keep:
		return missing("keep settled messages (Keep)")
	case t.MaxMessages > 0 && !s.MaxMessages:
		return missing("bound the messages of a topic (MaxMessages)")
	case t.MaxBytes > 0 && !s.MaxBytes:
		return missing("bound the bytes of a topic (MaxBytes)")
	}
	return nil
}

// LimitsOf returns the limits that b states, or else the backend that b wraps. They are
// zero if neither is a [Limited].
func LimitsOf(b Backend) Limits {
	if l, ok := As[Limited](b); ok {
		return l.Limits()
	}
	return Limits{}
}
