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
	return guarded(f, func(why any) error {
		found := damaged(s.path, why)
		s.damage.Store(found)
		return found
	})
}

// guarded calls f, and returns the error that onPanic makes of a panic or of a fault in mapped memory.
func guarded(f func() error, onPanic func(why any) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if why := recover(); why != nil {
			err = onPanic(why)
		}
	}()
	return f()
}

// damaged returns the error of a file with a page that is wrong.
func damaged(path string, why any) *FileError {
	return &FileError{
		Path: path, Err: backend.ErrRefused,
		Reason: fmt.Sprintf("is damaged (%v): restore it from a copy, or move it away to begin with an empty file", why),
	}
}
