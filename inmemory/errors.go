package inmemory

import (
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

var (
	errForeign = fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
	errRemoved = fmt.Errorf("%w: the message was removed", backend.ErrGone)
)

// failed puts the name of the failed call before the text of err. It returns nil if err is
// nil.
func failed(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("inmemory: %s: %w", call, err)
}
