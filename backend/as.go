package backend

import (
	"errors"
	"fmt"
)

// As finds an optional verb of v, which is a [Backend] or a [Source]. It looks in v, and
// then in the value that v wraps: a wrapper has a method Unwrap() Backend or Unwrap()
// Source.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		switch u := v.(type) {
		case interface{ Unwrap() Backend }:
			v = u.Unwrap()
		case interface{ Unwrap() Source }:
			v = u.Unwrap()
		default:
			v = nil
		}
	}
	var none T
	return none, false
}

// missing is the error of a verb that a backend does not have.
func missing(verb string) error {
	return fmt.Errorf("this backend cannot %s: %w", verb, errors.ErrUnsupported)
}
