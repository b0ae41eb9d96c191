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

// codes maps JetStream error codes to error classes. A request that failed with any other code
// had no effect: its class is ErrRefused, or ErrUnavailable if the status is 503.
var codes = map[jetstream.ErrorCode]error{
	10059: backend.ErrGone,           // stream not found
	10014: backend.ErrGone,           // consumer not found
	10149: backend.ErrGone,           // consumer does not exist
	10037: backend.ErrGone,           // no message found
	10063: backend.ErrUnknownOutcome, // this replica has another last message; other replicas may have stored the new one
	10077: errNoRoom,                 // maximum messages or bytes exceeded
	10047: backend.ErrFull,           // insufficient storage resources
	10023: backend.ErrFull,           // insufficient resources
	10002: backend.ErrFull,           // resource limits exceeded for account
	10028: backend.ErrFull,           // insufficient memory resources available
	10054: backend.ErrTooLarge,       // message size exceeds maximum allowed
	10097: backend.ErrTooLarge,       // header size exceeds maximum allowed
	10167: backend.ErrUnavailable,    // too many requests
	10008: backend.ErrUnavailable,    // JetStream system temporarily unavailable
	10009: backend.ErrUnavailable,    // cluster not available
	10005: backend.ErrUnavailable,    // no suitable peers for placement: too few servers run
	10118: backend.ErrUnavailable,    // stream is offline
	10119: backend.ErrUnavailable,    // consumer is offline
	10039: backend.ErrDenied,         // JetStream not enabled for account
	10035: backend.ErrDenied,         // JetStream not enabled for account
}

// remedies explains errors that the settings of new streams cause.
var remedies = map[jetstream.ErrorCode]string{
	10047: "the account or the server has less storage than the MaxBytes of all streams together; give new topics a lower MaxBytes (max_bytes)",
	10113: "give new topics a MaxBytes (max_bytes)",
	10122: "give new topics a lower MaxBytes (max_bytes)",
}

// classOf adds an error class to err. sent says whether a request with an effect may have been
// sent, so that its outcome is unknown. If ctx is done, the result may match ctx.Err() too.
func classOf(ctx context.Context, err error, sent bool) error {
	if err == nil || backend.Class(err) != nil {
		return err
	}
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return classOfAnswer(e)
	}
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload):
		return fmt.Errorf("%w: %w", backend.ErrTooLarge, err)
	case !sent && errors.Is(err, natsgo.ErrPermissionViolation), errors.Is(err, natsgo.ErrAuthorization):
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
		class = backend.ErrUnknownOutcome // the leader has not stored the message, but a replica may have
	}
	if remedy := remedies[e.ErrorCode]; remedy != "" {
		return fmt.Errorf("%w: %s (%d): %s", class, e.Description, e.ErrorCode, remedy)
	}
	return fmt.Errorf("%w: %s (%d)", class, e.Description, e.ErrorCode)
}

// An effect says whether an operation changes data in the server.
type effect bool

const (
	effective effect = true
	harmless  effect = false // it changes nothing, or may be repeated without harm
)

// run calls f for an operation, with a deadline of 5 seconds if ctx has none. It adds the class,
// the operation and its object to the error. If no answer came, the class is ErrUnknownOutcome
// for an effective operation, and ErrUnavailable for a harmless one.
func run[T any](ctx context.Context, b *Backend, op, what string, e effect, f func(ctx context.Context) (T, error)) (out T, err error) {
	if b.closed.Load() {
		return out, failure(b.closed.Load(), op, what, backend.ErrClosed)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	out, err = f(ctx)
	return out, failure(b.closed.Load(), op, what, classOf(ctx, err, bool(e)))
}

// call is run for an operation without a result.
func (b *Backend) call(ctx context.Context, op, what string, e effect, f func(ctx context.Context) error) error {
	_, err := run(ctx, b, op, what, e, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// bounded returns ctx with the timeout answerTimeout, unless ctx has a deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answerTimeout)
}

// failure adds the operation and its object, a topic or group, to err. If the backend is closed,
// the error becomes ErrClosed, unless the outcome is unknown.
func failure(closed bool, op, what string, err error) error {
	if err == nil {
		return nil
	}
	if closed && !errors.Is(err, backend.ErrUnknownOutcome) {
		err = backend.ErrClosed
	}
	if what != "" {
		op += " " + what
	}
	return fmt.Errorf("nats: %s: %w", op, err)
}
