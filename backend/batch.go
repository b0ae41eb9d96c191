package backend

import (
	"errors"
	"fmt"
)

// A BatchError has one entry for each item of a batch. The entry of an item that
// succeeded is nil.
type BatchError []error

// Error returns a text with the number of failures and the first failure.
func (e BatchError) Error() string {
	failed, first := 0, error(nil)
	for _, err := range e {
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	switch {
	case failed == 0:
		return "no error"
	case len(e) == 1:
		return first.Error()
	}
	return fmt.Sprintf("%d of %d failed, first: %v", failed, len(e), first)
}

// Unwrap returns the entries that are not nil.
func (e BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// ErrorAt returns the error of item i of a batch, where err is the error of the whole call.
// If err is or wraps a [BatchError], ErrorAt returns its entry i. If there is no entry i,
// the error matches [ErrUnknownOutcome]. For any other err, ErrorAt returns err.
func ErrorAt(err error, i int) error {
	if err == nil {
		return nil
	}
	if be, ok := errors.AsType[BatchError](err); ok {
		if i < len(be) {
			return be[i]
		}
		return fmt.Errorf("%w: the backend returned the results of %d items only", ErrUnknownOutcome, len(be))
	}
	return err
}

// AsBatchError returns errs as a [BatchError], or nil if all of them are nil.
func AsBatchError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return BatchError(errs)
		}
	}
	return nil
}

// Set makes err the entry of item i, in a batch of n items. The first call with a non-nil
// err allocates the entries. A call with a nil err does nothing.
func (e *BatchError) Set(i, n int, err error) {
	if err == nil {
		return
	}
	if *e == nil {
		*e = make(BatchError, n)
	}
	(*e)[i] = err
}
