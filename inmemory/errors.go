package inmemory

import (
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

var errForeign = fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)

// failed says which call err is of, and on which topic or group. Both may be empty.
// Without an error it returns none.
func failed(op, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case op == "":
		return fmt.Errorf("inmemory: %w", err)
	case name == "":
		return fmt.Errorf("inmemory: %s: %w", op, err)
	}
	return fmt.Errorf("inmemory: %s %s: %w", op, name, err)
}

// itemErrors are the errors of a batch. They are allocated with the first.
type itemErrors []error

func (e *itemErrors) set(i, size int, err error) {
	if *e == nil {
		*e = make([]error, size)
	}
	(*e)[i] = err
}
