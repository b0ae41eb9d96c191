package middleware

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// An ErrorRule reports whether [IgnoreErrors] ignores an error.
type ErrorRule func(error) bool

// Is returns a rule for errors that match one of targets, as errors.Is does.
func Is(targets ...error) ErrorRule {
	return func(err error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
}

// As returns a rule for errors that contain an error of type E, as errors.As does.
func As[E error]() ErrorRule {
	return func(err error) bool {
		_, ok := errors.AsType[E](err)
		return ok
	}
}

// IgnoreErrors turns a failed run into a success if one of rules accepts its error: the event is
// acknowledged and counted as handled. An event of SubscribeManual is dropped instead (see
// [eventbus.Drop]), because returning nil would not settle it.
//
// [Is] and [As] also find errors that [eventbus.Permanent] or [eventbus.RetryAfter] wraps. A panic
// or an [observer.NotRunError] is never ignored. To log ignored errors, put [Logging] after
// IgnoreErrors in Options.Middleware.
func IgnoreErrors(rules ...ErrorRule) eventbus.Middleware {
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			err := next(ctx, d)
			if err == nil || isNotRun(err) || As[*observer.PanicError]()(err) { // a batch returns its panic
				return err
			}
			for _, means := range rules {
				switch {
				case !means(err):
				case d.Manual:
					return eventbus.Drop("an ignored error: " + err.Error())
				default:
					return nil
				}
			}
			return err
		}
	}
}

// isNotRun reports whether err means that no handler ran.
func isNotRun(err error) bool { return As[*observer.NotRunError]()(err) }
