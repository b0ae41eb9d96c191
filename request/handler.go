package request

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// Handler returns a handler that publishes the event returned by h as the reply to each request.
// The context of h ends at the caller's deadline. If h returns neither an event nor an error, the
// reply is empty.
//
// If h fails, the bus retries the request. After the last attempt, or after [Refuse], the caller
// gets the text of the error. An event that does not ask for a reply is handled too, and what h
// returns is dropped.
func Handler(p eventbus.Publisher, h func(ctx context.Context, d *eventbus.Delivery) (*eventbus.Event, error)) eventbus.Handler {
	return func(ctx context.Context, d *eventbus.Delivery) error {
		until := ctx
		if deadline, err := time.Parse(time.RFC3339Nano, d.Headers.Get(Deadline)); err == nil {
			var cancel context.CancelFunc
			until, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
		reply, failure := h(until, d)
		refusal, refused := errors.AsType[*refusal](failure)
		switch {
		case refused:
			reply, failure = failed(refusal.error), nil
		case failure != nil && d.LastAttempt():
			reply = failed(failure)
		case failure != nil:
			return failure
		case reply == nil:
			reply = &eventbus.Event{}
		}
		if err := Reply(ctx, p, d, reply); err != nil && !errors.Is(err, ErrNoRequest) {
			return errors.Join(failure, err)
		}
		return failure
	}
}

const maxError = 512 // bytes of an error's text in a reply

// failed returns the reply to a request that has failed.
func failed(err error) *eventbus.Event {
	text := observer.ErrorText(err)
	return &eventbus.Event{
		ContentType: "text/plain", Payload: []byte(text[:min(len(text), maxError)]),
		Headers: eventbus.Headers{{Name: Failed, Value: "true"}},
	}
}

// Refuse returns an error for the function of a [Handler] to return when retrying would not help:
// the caller gets the text of err, and the request is acknowledged instead of retried.
func Refuse(err error) error { return &refusal{err} }

type refusal struct{ error }
