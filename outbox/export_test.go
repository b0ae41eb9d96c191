package outbox

import (
	"context"

	"github.com/seed41896749/eventbus"
)

// RelayWithoutLease is like Relay, but is active though others are.
func (o *Outbox) RelayWithoutLease(ctx context.Context, to eventbus.Publisher) error {
	return o.newRelay(to).run(ctx)
}
