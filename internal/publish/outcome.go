package publish

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// An outcome collects the results of all tries of one Publish call, for each message.
type outcome struct {
	msgs    []*backend.Message
	results []messageResult // of msgs, by index
}

// A messageResult is the result for one message.
type messageResult struct {
	waiting bool  // the message is waiting for another try
	refused bool  // the last try certainly didn't store the message
	err     error // combines the errors of all tries
}

func newOutcome(msgs []*backend.Message) *outcome {
	o := &outcome{msgs, make([]messageResult, len(msgs))}
	for i := range o.results {
		o.results[i].waiting = true
	}
	return o
}

// waiting returns the messages of the next try.
func (o *outcome) waiting() (msgs []*backend.Message) {
	for i, m := range o.msgs {
		if o.results[i].waiting {
			msgs = append(msgs, m)
		}
	}
	return msgs
}

// record adds the result of a try of the waiting messages, and reports whether to try again.
func (o *outcome) record(err error) (again bool) {
	n := 0
	for i, m := range o.msgs {
		f := &o.results[i]
		if !f.waiting {
			continue
		}
		e := backend.ErrorAt(err, n)
		n++
		f.waiting, f.refused = e != nil && repeatable(e, m.Once), e != nil && backend.NotStored(e)
		f.err = errorAfter(f.err, e)
		again = again || f.waiting
	}
	return again && o.keepsOrder()
}

// certain reports whether it is certain that the messages waiting for another try are not stored.
func (o *outcome) certain() bool {
	return !slices.ContainsFunc(o.results, func(f messageResult) bool { return f.waiting && !backend.NotStored(f.err) })
}

// cutOff adds reason to the errors of the messages that are waiting for another try.
func (o *outcome) cutOff(reason error) {
	for i := range o.results {
		if f := &o.results[i]; f.waiting {
			f.err = cutOff(f.err, reason)
		}
	}
}

func (o *outcome) error() error {
	errs := make([]error, len(o.results))
	for i, f := range o.results {
		errs[i] = f.err
	}
	return backend.AsBatchError(errs)
}

// keepsOrder reports whether another try keeps the order of each key. Trying a message again breaks
// the order if a later message with its key is stored, or if the last try certainly didn't store
// the message but may have stored a later one with its key.
func (o *outcome) keepsOrder() bool {
	there, perhaps := map[string]bool{}, map[string]bool{} // keys of later messages
	for i := len(o.msgs) - 1; i >= 0; i-- {
		key, f := o.msgs[i].Key, o.results[i]
		switch {
		case key == "":
			continue
		case f.waiting && (there[key] || f.refused && perhaps[key]):
			return false
		case f.err == nil:
			there[key] = true
		}
		if !f.refused {
			perhaps[key] = true
		}
	}
	return true
}

// errorAfter returns the error of a message after another try with the error err. If an earlier try
// may have stored the message, the outcome stays unknown even if the last try certainly didn't
// store it. A try that didn't reach the broker adds nothing to what the previous one showed.
func errorAfter(before, err error) error {
	if u, ok := errors.AsType[*unsentError](err); ok {
		return cmp.Or(cutOff(before, u.reason), err)
	}
	if err == nil || before == nil || backend.NotStored(before) || !backend.NotStored(err) {
		return err
	}
	return unknown(fmt.Errorf("%w, then: %w", before, err))
}

// repeatable reports whether another try of a message is safe and may help. A dropped message isn't
// tried again, and neither is one whose driver panicked, because it would only panic again.
func repeatable(err error, once bool) bool {
	if backend.NotStored(err) {
		return errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, ErrDropped)
	}
	_, panicked := errors.AsType[*observer.PanicError](err)
	return once && !panicked
}

// cutOff returns err, the error of a message, combined with the reason why the Publish call ended.
func cutOff(err, reason error) error {
	switch {
	case err == nil || errors.Is(err, reason):
		return err
	case backend.NotStored(err):
		return fmt.Errorf("%w: not sent: %w, last: %w", backend.ErrUnavailable, reason, err)
	}
	return unknown(fmt.Errorf("%w: %w", reason, err))
}

// An unsentError is the error of a message that didn't reach the broker.
type unsentError struct{ reason error }

func (e *unsentError) Error() string {
	return fmt.Sprintf("%v: not sent: %v", backend.ErrUnavailable, e.reason)
}

func (e *unsentError) Unwrap() []error { return []error{backend.ErrUnavailable, e.reason} }

func notSent(reason error) error { return &unsentError{reason} }
func unknown(err error) error    { return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err) }

func all(n int, err error) error {
	errs := make(backend.BatchError, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
