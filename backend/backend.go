// Package backend is the contract between the event bus and a broker. It says what a
// driver must do, and package conformance tests it.
//
// A group holds messages. Each message is due, that is ready to be delivered, from some
// moment on. Receive delivers the due messages with the lowest positions, and makes each
// due again one lease later. So a message is redelivered if its receiver has died. Ack
// removes a message from the group. Delay and Extend change the moment from which a message
// is due. The bus does everything else, for all drivers: retries, dead letters, limits,
// order, timeouts and draining.
//
// A driver implements [Backend] and [Source], which have six methods together. With a
// [Driver], programs can open the Backend by URL. If the broker can do more, the driver
// implements optional interfaces, called verbs: [Delayer] and [Extender] for the Source;
// [Declarer], [Maintainer], [Reader], [Remover], [Statser], [Admin], [Pauser], [Settler], [Clocker], [Pinger] and
// [Checker]
// for the Backend. The Backend states facts about itself, such as its limits, by [Limited]. If a
// verb turns out at run time not to work, its error matches [errors.ErrUnsupported].
//
// A driver repeats no call by itself and logs nothing. It sends notices for the operator to
// [Config].Notify. It starts no goroutines, with one exception: if its client library takes
// no contexts, a goroutine of the Backend may call the library. A method can then return
// when its context is done. Close waits for that goroutine.
//
// Publish and Receive say how they treat ctx. Any other method may ignore ctx if it does
// not wait. Otherwise it returns soon after ctx is done, with an error that matches
// ctx.Err(). The error also matches [ErrUnavailable] if the call certainly had no effect,
// and [ErrUnknownOutcome] if it may have had one.
package backend

import "context"

// A Backend speaks to one broker. Its methods are safe for concurrent use. After Close,
// every method except Close returns [ErrClosed].
type Backend interface {
	// Publish stores msgs, which may be of several topics, and creates missing topics.
	// It stores the messages of one topic in the order given.
	//
	// Publish returns after the broker has stored every message as durably as it can. It
	// sets Position and Duplicate of each stored message. If only some messages were
	// stored, the error is a [BatchError].
	//
	// A message is certainly not stored if its error matches [ErrUnavailable], [ErrDenied],
	// [ErrFull], [ErrTooLarge], [ErrRefused], [ErrClosed] or [errors.ErrUnsupported], and
	// does not match [ErrUnknownOutcome]. With any other error the message may be stored.
	// Such an error should match ErrUnknownOutcome.
	//
	// ctx bounds the call and may have no deadline. Publish returns soon after ctx is done.
	// The error of a message that may have been sent is then ErrUnknownOutcome. The error
	// of a message that was not sent is ErrUnavailable. Both match ctx.Err() too. The
	// driver must not use the messages, their headers or payloads after Publish has
	// returned, so it copies the data that it keeps.
	Publish(ctx context.Context, msgs []*Message) error

	// Attach makes a new member of a group, and creates the topic and the group if they
	// are missing. The group exists when Attach returns. So a new group with [StartLatest]
	// gets every message whose Publish begins later. ctx bounds Attach, not the Source.
	Attach(ctx context.Context, c Config) (Source, error)

	// Close closes every Source and frees everything that the Backend owns. A client
	// that the program passed to the driver stays open. Closing twice is not an error.
	Close() error
}
