package backend

import "time"

// Limited is a [Backend] that states facts about itself. A backend without it has the
// zero [Limits].
type Limited interface {
	Limits() Limits
}

// Limits are facts about a backend. They do not change while it is open.
type Limits struct {
	Batch      int           // most messages in one Publish, Ack, Delay or Extend; 0: any number
	Payload    int           // the largest Message.Size, in bytes; 0: not known
	Delay      time.Duration // the longest Delayed.For; 0: any
	OnceWindow time.Duration // how long the ID of a message with Once is remembered; 0: Once has no effect
	Refund     bool          // Delayed.Refund works; otherwise every receipt counts as an attempt

	// LooseAcks: without Config.ConfirmAcks, Ack returns when the acknowledgement is
	// sent, before the broker has confirmed it.
	LooseAcks bool

	// FencedAcks: with Config.ConfirmAcks, Ack returns [ErrLeaseLost] to a member that is
	// no longer the holder.
	FencedAcks bool

	// Publishers is how many calls of Publish the bus makes at the same time, because
	// more would not be faster. 0 means 4. A store with one writer states 1. A negative
	// number means any number, and that Publish never waits. The bus then neither joins
	// concurrent calls in one, nor bounds a call by its Options.PublishTimeout. So a
	// wrapper whose Publish waits states 0.
	Publishers int
}

// LimitsOf returns the facts that b states, or the backend that b wraps.
func LimitsOf(b Backend) Limits {
	if l, ok := As[Limited](b); ok {
		return l.Limits()
	}
	return Limits{}
}
