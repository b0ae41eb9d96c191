package eventbus

import (
	"fmt"
	"strconv"

	"github.com/seed41896749/eventbus/internal/engine"
)

// AckMode says when an event is acknowledged.
type AckMode uint8

const (
	// AckOnSuccess acknowledges an event when its handler has returned nil: at least once.
	AckOnSuccess AckMode = iota

	// AckOnReceive acknowledges an event just before its handler runs: at most once. The
	// handler runs only if the acknowledgement is confirmed within the lease. An event
	// whose handler fails is counted as discarded, unless DeadLetterOnReceive is set.
	AckOnReceive
)

// String returns the word for a in a configuration file, such as "on-success".
func (a AckMode) String() string { return word(a, "on-success", "on-receive") }

// word returns the word for v, whose values are numbers from 0.
func word[T ~uint8](v T, words ...string) string {
	if int(v) < len(words) {
		return words[v]
	}
	return strconv.Itoa(int(v))
}

// mode returns the engine.Mode that corresponds to a.
func (a AckMode) mode() (engine.Mode, error) {
	switch a {
	case AckOnSuccess:
		return engine.OnSuccess, nil
	case AckOnReceive:
		return engine.OnReceive, nil
	}
	return 0, &FieldError{Field: "SubscribeOptions.Ack", Reason: fmt.Sprintf("is %d, which is no AckMode", a)}
}
