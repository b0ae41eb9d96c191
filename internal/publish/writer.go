package publish

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

// A writer calls the backend's Publish.
type writer struct {
	backend  backend.Backend
	limits   backend.Limits
	recovery *wait.Recovery
	most     int             // the most messages in one call
	late     error           // the error of every call that has timed out
	done     context.Context // done when all calls must end
	stop     context.CancelCauseFunc
}

const (
	messagesPerWrite = 1000
	bytesPerWrite    = 8 << 20
)

func newWriter(b backend.Backend, timeout time.Duration, r *wait.Recovery) writer {
	w := writer{backend: b, recovery: r, limits: backend.LimitsOf(b), most: messagesPerWrite}
	if w.limits.Batch > 0 {
		w.most = min(w.limits.Batch, messagesPerWrite)
	}
	w.late = fmt.Errorf("after %v: %w", timeout, context.DeadlineExceeded)
	w.done, w.stop = context.WithCancelCause(context.Background())
	return w
}

// bound returns a child of ctx that ends at until, unless until is zero.
func (w *writer) bound(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	if until.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, until, w.late)
}

var errBehindUnknown = errors.New("the outcome of earlier messages is unknown")

// write stores msgs in as few calls as the limits allow. After a call with an unknown outcome it
// makes no further call: if that call's messages were tried again, they would be stored after later
// ones.
func (w *writer) write(ctx context.Context, msgs []*backend.Message) error {
	n := w.portion(msgs)
	if n == len(msgs) {
		return w.call(ctx, msgs)
	}
	errs := make([]error, 0, len(msgs))
	behind := false
	for rest := msgs; len(rest) > 0; rest = rest[n:] {
		err := notSent(errBehindUnknown)
		if n = w.portion(rest); !behind {
			err = w.call(ctx, rest[:n:n])
		}
		for i := range n {
			errs = append(errs, backend.ErrorAt(err, i))
			behind = behind || errs[len(errs)-1] != nil && !backend.NotStored(errs[len(errs)-1])
		}
	}
	return backend.AsBatchError(errs)
}

// portion returns how many of msgs fit into one call, which is at least one.
func (w *writer) portion(msgs []*backend.Message) int {
	bytes := 0
	for i, m := range msgs {
		if bytes += m.Size(); i > 0 && (i == w.most || bytes > bytesPerWrite) {
			return i
		}
	}
	return len(msgs)
}

// call makes one call to the backend. A panic of the driver becomes an error. If ctx has ended, the
// error includes the reason.
func (w *writer) call(ctx context.Context, msgs []*backend.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = unknown(&observer.PanicError{Where: "driver's Publish", Value: v, Stack: debug.Stack()})
		}
	}()
	if ctx.Err() != nil {
		return notSent(w.reason(ctx))
	}
	err = w.backend.Publish(ctx, msgs)
	if err == nil {
		w.recovery.Succeeded()
	}
	if err == nil || ctx.Err() == nil {
		return err
	}
	errs := make(backend.BatchError, len(msgs))
	for i := range errs {
		errs[i] = cutOff(backend.ErrorAt(err, i), w.reason(ctx))
	}
	return errs
}

// reason returns why ctx, the context of a call, has ended.
func (w *writer) reason(ctx context.Context) error {
	if w.done.Err() != nil {
		return context.Cause(w.done)
	}
	return context.Cause(ctx)
}
