// Package middleware has common wrappers for handlers and for publishing. Each wrapper uses
// only the public API, so a program can write its own.
//
// These wrappers are for handlers. The list has an order for Options.Middleware that suits
// most programs, the outermost wrapper first:
//
//   - [Correlate] names the origin of published events. It also wraps publishing.
//   - [Audit] publishes a record of each run.
//   - [Logging] logs each run.
//   - [Dedupe] discards events that were handled before. Package results belongs behind it.
//   - [Throttle] limits runs per second, for each bucket, such as a tenant.
//   - [IgnoreErrors] treats some errors as success.
//   - [Validate] sends invalid events to the dead-letter topic.
//   - [Timeout] bounds runs by the type of event.
//
// Every other order works too. A wrapper sees only the results of the wrappers after it in
// the list. If Dedupe came after IgnoreErrors, Dedupe would see the ignored error and not
// mark the event. If Throttle came after Timeout, its wait would count towards the timeout.
//
// An [Envelope] wraps both publishing and handling. It has four optional steps, in a fixed
// order. Its method Install puts it in the right place of Options.Middleware and
// Options.PublishMiddleware.
//
//   - [Compress] makes payloads smaller.
//   - [Encrypt] hides payloads from the broker and its other users.
//   - [ClaimCheck] keeps large payloads in another store.
//   - [Sign] shows which program published an event.
package middleware
