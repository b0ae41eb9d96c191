// Package middleware has common wrappers for handlers and for publishing. Each uses only
// the public API, so a program could write it too.
//
// For handlers, in Options.Middleware, in an order that suits most programs:
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
// For publishing and handling together, an [Envelope] has four steps, whose order it
// knows. Its method Install puts it in the right place of both lists.
//
//   - [Compress] makes payloads smaller.
//   - [Encrypt] hides them from the broker and its readers.
//   - [ClaimCheck] keeps large ones in another store.
//   - [Sign] shows which program published an event.
package middleware
