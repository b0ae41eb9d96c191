package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var (
	errConnectionLost = errors.New("the connection was lost")
	errNotConnected   = errors.New("not connected")
)

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
	10005: backend.ErrUnavailable, // no suitable peers for placement: too few servers run
	10118: backend.ErrUnavailable, // stream is offline
	10119: backend.ErrUnavailable, // consumer is offline
	10039: backend.ErrDenied,      // JetStream not enabled for account
	10035: backend.ErrDenied,      // JetStream not enabled for account
}

var classes = []error{
	backend.ErrClosed, backend.ErrUnknownOutcome, backend.ErrUnavailable, backend.ErrTooLarge, backend.ErrRefused,
	backend.ErrGone, backend.ErrFull, backend.ErrDenied, backend.ErrLeaseLost, errors.ErrUnsupported,
}

// classOf returns the class of an error, sent saying whether anything with an
// effect was sent. The error of a context stays visible beside it.
func classOf(ctx context.Context, err error, sent bool) error {
	if err == nil {
		return nil
	}
	for _, known := range classes {
		if errors.Is(err, known) {
			return err
		}
	}
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return classOfAnswer(e)
	}
	switch {
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
	if e.ErrorCode == 10077 && !strings.HasPrefix(e.Description, "maximum") {
		class = backend.ErrUnknownOutcome // the leader could not store it; others may have
	}
	if e.ErrorCode == 10047 {
		return fmt.Errorf("%w: %s (%d): the server's storage is less than MaxBytes of the streams on it", class, e.Description, e.ErrorCode)
	}
	return fmt.Errorf("%w: %s (%d)", class, e.Description, e.ErrorCode)
}

// call runs one call of a backend, within a time if ctx has no end, and gives
// its error a class and a place. An effect of it is not certain to have been
// prevented by an error.
func (b *Backend) call(ctx context.Context, op, what string, f func(ctx context.Context) error) error {
	return b.run(ctx, op, what, true, f)
}

// look is like call, for what has no effect, or one that does no harm.
func (b *Backend) look(ctx context.Context, op, what string, f func(ctx context.Context) error) error {
	return b.run(ctx, op, what, false, f)
}

func (b *Backend) run(ctx context.Context, op, what string, effect bool, f func(ctx context.Context) error) error {
	if b.closed.Load() {
		return b.failure(op, what, backend.ErrClosed)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return b.failure(op, what, classOf(ctx, f(ctx), effect))
}

// bounded gives a context an end, if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answer)
}

// failure says where an error was.
func (b *Backend) failure(op, what string, err error) error {
	if err == nil {
		return nil
	}
	if b.closed.Load() && !errors.Is(err, backend.ErrUnknownOutcome) {
		err = backend.ErrClosed
	}
	if what != "" {
		op += " " + what
	}
	return fmt.Errorf("nats: %s: %w", op, err)
}
