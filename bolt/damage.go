package bolt

import (
	"fmt"
	"runtime/debug"

	"github.com/seed41896749/eventbus/backend"
)

// guard calls f. bbolt panics, or its memory has a fault, where a page of the file is wrong. guard
// returns that as a [FileError], and so does each later call: the store stops, because further
// writes would make the damage worse.
func (s *store) guard(f func() error) (err error) {
	if found := s.damage.Load(); found != nil {
		return found
	}
	return recoverFault(f, func(why any) error {
		found := damageError(s.path, why)
		s.damage.Store(found)
		return found
	})
}

// recoverFault calls f, and returns the error that onPanic makes of a panic or of a fault in mapped memory.
func recoverFault(f func() error, onPanic func(why any) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if why := recover(); why != nil {
			err = onPanic(why)
		}
	}()
	return f()
}

// damageError returns the error of a file with a page that is wrong.
func damageError(path string, why any) *FileError {
	return &FileError{
		Path: path, Err: backend.ErrRefused,
		Reason: fmt.Sprintf("is damaged (%v): restore it from a copy, or move it away to begin with an empty file", why),
	}
}

// A FileError says why a file cannot be used, and the remedy. Its class is
// [backend.ErrUnavailable] while another process has the file open. It is [backend.ErrDenied]
// if the user has no right to the file, and [backend.ErrRefused] if the file is damaged or of
// another kind.
type FileError struct {
	Path   string
	Reason string // continues a sentence that begins with the path
	Err    error  // the class
}

func (e *FileError) Error() string { return e.Path + " " + e.Reason }

// Unwrap returns the class.
func (e *FileError) Unwrap() error { return e.Err }
