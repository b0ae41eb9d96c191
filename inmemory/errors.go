package inmemory

import (
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

var (
	errForeign = fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
	errRemoved = fmt.Errorf("%w: the message was removed", backend.ErrGone)
)

// failed adds the call to an error.
func failed(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("inmemory: %s: %w", call, err)
}
