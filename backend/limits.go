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
	Payload    int           // most bytes of Message.Size in one message; 0: not known
	Delay      time.Duration // longest Delay; 0: any
	OnceWindow time.Duration // how long Once remembers an ID; 0: Once is not offered
	Refund     bool          // Delayed.Refund works; otherwise every receipt counts

	// LooseAcks: without Config.ConfirmAcks, Ack returns when the acknowledgement is
	// sent, before the broker has confirmed it.
	LooseAcks bool

	// FencedAcks: with Config.ConfirmAcks, Ack tells a member that it is no longer
	// the holder.
	FencedAcks bool

	// Publishers is how many calls of Publish the bus makes at the same time, because
	// more would not be faster. 0 means 4. Less than 0 means any number: Publish then
	// waits for nothing, and concurrent calls have no round trip to share. A store with
	// one writer states 1. If it is less than 0, Options.PublishTimeout of the bus does
	// not bound Publish. A wrapper whose Publish waits states 0.
	Publishers int
}

// LimitsOf returns the facts that b states, or the backend that b wraps.
func LimitsOf(b Backend) Limits {
	if l, ok := As[Limited](b); ok {
		return l.Limits()
	}
	return Limits{}
}
