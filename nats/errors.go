package nats

import (
	"context"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var errConnectionLost = errors.New("the connection was lost")

// codes are what an answer of JetStream with a code means. Others are
// ErrRefused: the server has said no, and nothing happened.
var codes = map[jetstream.ErrorCode]error{
	10059: backend.ErrGone,        // stream not found
	10014: backend.ErrGone,        // consumer not found
	10149: backend.ErrGone,        // consumer does not exist
	10037: backend.ErrGone,        // no message found
	10077: backend.ErrFull,        // maximum messages or bytes exceeded, and discard is new
	10047: backend.ErrFull,        // insufficient storage resources
	10023: backend.ErrFull,        // insufficient resources
	10054: backend.ErrTooLarge,    // message size exceeds maximum allowed
	10008: backend.ErrUnavailable, // JetStream system temporarily unavailable
	10009: backend.ErrUnavailable, // cluster not available
	10118: backend.ErrUnavailable, // stream is offline
	10119: backend.ErrUnavailable, // consumer is offline
	10039: backend.ErrDenied,      // JetStream not enabled for account
	10035: backend.ErrDenied,      // JetStream not enabled for account
}

// classOf returns the class of an error, sent saying whether anything with an
// effect was sent. The error of a context stays visible beside it.
func classOf(ctx context.Context, err error, sent bool) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{backend.ErrClosed, backend.ErrUnknownOutcome, backend.ErrUnavailable, backend.ErrTooLarge, backend.ErrRefused, backend.ErrGone, backend.ErrFull, backend.ErrDenied} {
		if errors.Is(err, known) {
			return err
		}
	}
	if e, ok := errors.AsType[jetstream.JetStreamError](err); ok && e.APIError() != nil {
		return classOfAnswer(e.APIError())
	}
	switch {
	case errors.Is(err, natsgo.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w: nobody answers", backend.ErrGone)
	case errors.Is(err, natsgo.ErrMaxPayload):
		return fmt.Errorf("%w: %w", backend.ErrTooLarge, err)
	case errors.Is(err, natsgo.ErrPermissionViolation), errors.Is(err, natsgo.ErrAuthorization):
		return fmt.Errorf("%w: %w", backend.ErrDenied, err)
	}
	class := backend.ErrUnknownOutcome
	if !sent {
		class = backend.ErrUnavailable
	}
	if done := ctx.Err(); done != nil {
		return fmt.Errorf("%w: %w", class, done)
	}
	return fmt.Errorf("%w: %w", class, err)
}

func classOfAnswer(e *jetstream.APIError) error {
	class := codes[e.ErrorCode]
	switch {
	case class != nil:
	case e.Code == 503:
		class = backend.ErrUnavailable
	default:
		class = backend.ErrRefused
	}
	if e.ErrorCode == 10047 {
		return fmt.Errorf("%w: %s (%d): the server's storage is less than MaxBytes of the streams on it", class, e.Description, e.ErrorCode)
	}
	return fmt.Errorf("%w: %s (%d)", class, e.Description, e.ErrorCode)
}
