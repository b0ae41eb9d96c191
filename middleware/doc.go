// Package middleware has common wrappers for handlers and for publishing. Each wrapper uses
// only the public API, so a program could have such a wrapper of its own.
//
// These wrappers are for handlers, in Options.Middleware, in an order that suits most
// programs:
//
//   - [Correlate] names the origin of events that a handler publishes (publishing too).
//   - [Audit] publishes a record of each run.
//   - [Logging] logs each run.
//   - [Dedupe] discards events that were handled before.
//   - [Throttle] limits runs per second and bucket, such as a tenant.
//   - [IgnoreErrors] makes some errors a success.
//   - [Validate] sends invalid events to the dead-letter topic.
//   - [Timeout] bounds runs by the type of event.
//
// Every other order works too, because a wrapper knows only the results of the
// wrappers behind it. If Dedupe stood behind IgnoreErrors, an ignored error would not be
// marked. If Throttle stood behind Timeout, its wait would be part of the timeout.
//
// An [Envelope] is for publishing and handling together. It has four steps in a fixed
// order. Its method Install puts it in the right place of Options.Middleware and
// Options.PublishMiddleware.
//
//   - [Compress] makes payloads smaller.
//   - [Encrypt] hides them from the broker and its readers.
//   - [ClaimCheck] keeps large ones in another store.
//   - [Sign] shows which program published an event.
package middleware
