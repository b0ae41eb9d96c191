package backend

import (
	"errors"
	"fmt"
)

// As returns v, a [Backend] or a [Source], as a T, which is an optional interface such as
// [Delayer]. If v does not implement T, As tries the value that v wraps, and so on. It
// returns false if none of them implements T. A wrapper has a method Unwrap() Backend or
// Unwrap() Source.
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

// missing returns an error that matches [errors.ErrUnsupported]. verb says what a backend
// without the optional interface cannot do, such as "read topics".
func missing(verb string) error {
	return fmt.Errorf("this backend cannot %s: %w", verb, errors.ErrUnsupported)
}
