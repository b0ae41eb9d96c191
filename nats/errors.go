package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var (
	errConnectionLost = errors.New("the connection was lost")
	errNotConnected   = errors.New("not connected")
)

// codes maps JetStream error codes to error classes. A request with any other error code had
// no effect. Its class is ErrRefused, or ErrUnavailable if the status of the error is 503.
var codes = map[jetstream.ErrorCode]error{
	10059: backend.ErrGone,           // stream not found
	10014: backend.ErrGone,           // consumer not found
	10149: backend.ErrGone,           // consumer does not exist
	10037: backend.ErrGone,           // no message found
	10063: backend.ErrUnknownOutcome, // this replica has another last message; other replicas may have stored the new one
	10077: errNoRoom,                 // maximum messages or bytes exceeded, and the stream refuses new messages
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

// remedies explains error codes that the settings of new streams cause.
var remedies = map[jetstream.ErrorCode]string{
	10047: "the account or the server has less storage than MaxBytes of all streams together; give new topics a lower MaxBytes (max_bytes)",
	10113: "give new topics a MaxBytes (max_bytes)",
	10122: "give new topics a lower MaxBytes (max_bytes)",
}

// classOf adds an error class to err. sent says whether a request with an effect may have
// been sent, so that the outcome is unknown. If ctx is done, the result may match ctx.Err()
// too.
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
		class = backend.ErrUnknownOutcome // the leader did not store the message; a replica may have stored it
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
	harmless  effect = false // it changes nothing, or can be repeated without harm
)

// run calls f for an operation. If ctx has no deadline, it adds one of 5 seconds. It adds
// class, operation and topic to the error. Without an answer the class is ErrUnknownOutcome
// if the operation is effective, and ErrUnavailable if it is harmless.
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

// bounded returns ctx with a timeout of 5 seconds (const answer), unless ctx has a deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answer)
}

// failure adds the operation to err, and the topic or group in what. If closed is set, the error
// is ErrClosed, unless err is ErrUnknownOutcome.
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

const unserved = "nobody serves the consumer"

// errPasses means that a pull failed, and the next one may succeed.
var errPasses = fmt.Errorf("%w: a pull was refused", backend.ErrUnavailable)

// meaning returns the error of a pull that a status message has ended, or nil for an
// ordinary end. asked is the time at which the pull was sent; end is the status message.
func (s *source) meaning(ctx context.Context, asked time.Time, end *natsgo.Msg) error {
	switch status, text := end.Header.Get("Status"), end.Header.Get("Description"); {
	case status == "408" && text == "Requests Pending": // pulls of other members are waiting already
		sleep(ctx, s.ended, 20*time.Millisecond)
		return nil
	case status == "404", status == "408": // no messages, or the pull expired
		return nil
	case status == "503": // the consumer is deleted, or has no leader
		if err := s.fate(ctx, asked, unserved); errors.Is(err, backend.ErrGone) {
			return err
		}
		return fmt.Errorf("%w: %s", errPasses, unserved)
	case status != "409":
		return fmt.Errorf("%w: status %s %s", backend.ErrRefused, status, text)
	case strings.HasPrefix(text, "Consumer Deleted"):
		return fmt.Errorf("%w: %s", backend.ErrGone, text)
	case strings.HasPrefix(text, "Leadership Change"), strings.HasPrefix(text, "Server Shutdown"), strings.HasPrefix(text, "Exceeded MaxWaiting"):
		return fmt.Errorf("%w: %s", backend.ErrUnavailable, text)
	case strings.HasPrefix(text, "Exceeded MaxRequest"):
		info, err := s.info(ctx)
		if err == nil {
			s.pulls.respect(info.Config)
		}
		return fmt.Errorf("%w: %s", errPasses, text)
	default:
		return fmt.Errorf("%w: %s", backend.ErrRefused, text)
	}
}

// info asks the server about the consumer of the member.
func (s *source) info(ctx context.Context) (info jetstream.ConsumerInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = s.backend.ask(ctx, consumerInfo(s.place, s.config.Group), nil, &info)
	if err == nil {
		s.halt.learn(pauseOf(&info))
		s.taken.learn(&info)
	}
	return info, err
}

// fate asks the server why a consumer does not answer a request, which was sent at the time
// sent. If the consumer does not exist, or was created after that time, the error is
// ErrGone. Otherwise it is ErrUnavailable. A server that deletes a consumer may end its
// pulls without a status message.
func (s *source) fate(ctx context.Context, sent time.Time, sign string) error {
	info, err := s.info(ctx)
	gone := isCode(err, jetstream.JSErrCodeConsumerNotFound, jetstream.JSErrCodeStreamNotFound)
	if err == nil && !info.Created.IsZero() {
		gone = info.TimeStamp.Sub(info.Created) < time.Since(sent) // both times are by the clock of the server
	}
	if gone {
		return fmt.Errorf("%w: %s", backend.ErrGone, sign)
	}
	return fmt.Errorf("%w: %s", backend.ErrUnavailable, sign)
}
