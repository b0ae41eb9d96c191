// Package backend is the contract between the event bus and a broker. It says what a
// driver must do, and package conformance tests it.
//
// A group holds messages. Each message has a moment from which it is due. Receive hands
// out the due messages with the lowest positions, and makes each due again one lease
// later. So a message that its holder abandons is redelivered by itself. Ack removes a
// message from the group. Delay and Extend move the moment. Everything else (retries,
// dead letters, limits, order, timeouts, draining) is policy. The bus does it, once, for
// every driver.
//
// A driver implements [Backend] and [Source], six methods. It says what else its broker
// can do by implementing an optional verb ([Delayer], [Extender], [Declarer],
// [Maintainer], [Reader], [Remover], [Statser], [Admin], [Pinger]) and states facts by [Limited]. A
// verb that turns out to be missing only at run time returns an error that matches
// [errors.ErrUnsupported].
//
// A driver repeats no call by itself and logs nothing. It tells an operator of events
// through [Config].Notify. It starts no goroutines, with one exception: if its client
// library knows no contexts, a goroutine of the Backend may call the library, so that a
// call can leave when its context is done. Close waits for that goroutine.
//
// For the contexts of all methods but Publish and Receive this holds: a call that needs no
// waiting may ignore ctx. Otherwise it returns soon after ctx is done, with an error that
// matches ctx.Err(). The error matches [ErrUnavailable] too if the call certainly had no
// effect, and [ErrUnknownOutcome] if it may have had one.
package backend

import "context"

// A Backend speaks to one broker. Its methods are safe for concurrent use. After Close
// each of them returns [ErrClosed].
type Backend interface {
	// Publish stores msgs, which may be of several topics, and creates topics as
	// needed. It stores the messages of one topic in the order given.
	//
	// Publish returns when every message is stored as durably as the broker can. It
	// then has set Position and Duplicate of each. If only some messages were stored,
	// the error is a [BatchError]. A message whose error matches [ErrUnavailable],
	// [ErrDenied], [ErrFull], [ErrTooLarge] or [ErrRefused] is certainly not stored.
	// With any other error the message may be stored, and the error should match
	// [ErrUnknownOutcome]. The driver does not repeat the call.
	//
	// ctx bounds the call and may have no deadline. Soon after ctx is done Publish
	// returns. The error of a message that may have been sent is then
	// ErrUnknownOutcome; the error of a message that was not sent is ErrUnavailable;
	// both match ctx.Err() too. The messages, their headers and payloads are lent
	// until Publish returns, so a driver copies whatever it keeps.
	Publish(ctx context.Context, msgs []*Message) error

	// Attach makes a new member of a group, and creates topic and group as needed.
	// When it returns, the group exists: with [StartLatest] it gets every message whose
	// Publish begins after that. ctx bounds attaching only.
	Attach(ctx context.Context, c Config) (Source, error)

	// Close closes every Source and frees everything that the Backend owns. A client
	// that was lent to the driver stays open. Closing twice is not an error.
	Close() error
}
