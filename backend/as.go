package backend

import (
	"errors"
	"fmt"
)

// As returns v as a T, an optional interface such as [Delayer]. If v is no T, As tries the
// value that v wraps, and so on. v is a [Backend] or a [Source]. A wrapper has a method
// Unwrap() Backend or Unwrap() Source.
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

// missing returns the error of a call whose optional interface a backend does not have.
func missing(verb string) error {
	return fmt.Errorf("this backend cannot %s: %w", verb, errors.ErrUnsupported)
}
