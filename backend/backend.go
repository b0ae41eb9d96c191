// Package backend is the contract between the event bus and a broker. It says what a
// driver must do, and package conformance tests it.
//
// A group holds messages. Each message is due, that is ready to be delivered, from some
// moment on. Receive delivers the due messages with the lowest positions, and makes each
// due again one lease later. So if its receiver has died, a message is redelivered. Ack
// removes a message from the group. Delay and Extend change the moment. Everything else
// (retries, dead letters, limits, order, timeouts, draining) is done by the bus, once, for
// every driver.
//
// A driver implements [Backend] and [Source], six methods. If its broker can do more, it
// implements optional interfaces, called verbs ([Delayer], [Extender], [Declarer],
// [Maintainer], [Reader], [Remover], [Statser], [Admin], [Pinger]). It states facts by
// [Limited]. If a verb turns out at run time not to work, its error matches
// [errors.ErrUnsupported].
//
// A driver repeats no call by itself and logs nothing. It sends messages for the operator
// to [Config].Notify. It starts no goroutines, with one exception: if its client library
// takes no contexts, a goroutine of the Backend may call the library, so that a method
// can return when its context is done. Close waits for that goroutine.
//
// Publish and Receive say how they treat ctx. Any other method may ignore ctx if it does
// not wait. Otherwise it returns soon after ctx is done, with an error that matches
// ctx.Err(). The error also matches [ErrUnavailable] if the call certainly had no effect,
// and [ErrUnknownOutcome] if it may have had one.
package backend

import "context"

// A Backend speaks to one broker. Its methods are safe for concurrent use. After Close
// each other method returns [ErrClosed].
type Backend interface {
	// Publish stores msgs, which may be of several topics, and creates missing topics.
	// It stores the messages of one topic in the order given.
	//
	// Publish returns when every message is stored as durably as the broker can. It
	// sets Position and Duplicate of each stored message. If only some messages were
	// stored, the error is a [BatchError]. If the error of a message matches
	// [ErrUnavailable], [ErrDenied], [ErrFull], [ErrTooLarge], [ErrRefused] or
	// [ErrClosed], the message is certainly not stored. With any other error it may be
	// stored, and the error should match [ErrUnknownOutcome].
	//
	// ctx bounds the call and may have no deadline. Soon after ctx is done Publish
	// returns. The error of a message that may have been sent is then
	// ErrUnknownOutcome; the error of a message that was not sent is ErrUnavailable;
	// both match ctx.Err() too. The driver must not use the messages, their headers or
	// payloads after Publish has returned, so it copies the data that it keeps.
	Publish(ctx context.Context, msgs []*Message) error

	// Attach makes a new member of a group, and creates the topic and the group if they
	// are missing. When it returns, the group exists: with [StartLatest] it gets every
	// message whose Publish begins after that. ctx bounds Attach, not the Source.
	Attach(ctx context.Context, c Config) (Source, error)

	// Close closes every Source and frees everything that the Backend owns. A client
	// that the program passed to the driver stays open. Closing twice is not an error.
	Close() error
}
