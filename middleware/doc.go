// Package middleware has common wrappers for handlers and for publishing. They use only the public
// API, so you can write your own in the same way.
//
// These wrappers are for handlers, listed in an order that suits most programs in
// Options.Middleware, outermost first:
//
//   - [Correlate] gives published events the ID of the event that caused them. It also wraps
//     publishing.
//   - [Audit] publishes a record of each run.
//   - [Logging] logs each run.
//   - [Dedupe] discards events that were already handled. Put package results after it.
//   - [Throttle] limits runs per second, per bucket, for example per tenant.
//   - [IgnoreErrors] treats some errors as success.
//   - [Validate] sends invalid events to the dead-letter topic.
//   - [Timeout] limits runs by event type.
//
// Any other order works too, but a wrapper only sees the results of the wrappers after it. For
// example, if Dedupe came after IgnoreErrors, it would see the ignored error and not mark the event
// as handled. If Throttle came after Timeout, its waiting time would count towards the timeout.
//
// An [Envelope] wraps both publishing and handling. It has four optional steps in a fixed order,
// and its method Install puts it in the right place of Options.Middleware and
// Options.PublishMiddleware:
//
//   - [Compress] makes payloads smaller.
//   - [Encrypt] hides payloads from the broker and its other users.
//   - [ClaimCheck] keeps large payloads in another store.
//   - [Sign] proves which program published an event.
package middleware
