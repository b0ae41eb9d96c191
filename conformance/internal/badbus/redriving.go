package badbus

import (
	"context"

	"github.com/seed41896749/eventbus/backend"
)

// redriving has the saboteurs that break promises about redriven dead letters, which are
// published again.
var redriving = []Saboteur{
	{
		Name: "bus-redrives-to-all", Breaks: "a redriven event is a new event, for every group",
		backend: func(b backend.Backend) backend.Backend {
			return &sourced{Backend: b, source: func(s backend.Source) backend.Source { return &unaddressed{s} }}
		},
	},
	{
		Name: "bus-forgets-redrives", Breaks: "an event may be redriven for ever",
		backend: func(b backend.Backend) backend.Backend { return &forgetful{b} },
	},
}

// unaddressed is a source that hides that a redriven message is for one group only.
type unaddressed struct{ backend.Source }

func (u *unaddressed) Unwrap() backend.Source { return u.Source }

func (u *unaddressed) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := u.Source.Receive(ctx, max, maxBytes)
	for i := range ds {
		ds[i].Headers.Del("ce-redrivegroup")
	}
	return ds, err
}

// forgetful is a backend that stores dead letters without the number of their redrives.
type forgetful struct{ backend.Backend }

func (f *forgetful) Unwrap() backend.Backend { return f.Backend }

func (f *forgetful) Publish(ctx context.Context, msgs []*backend.Message) error {
	for _, m := range msgs {
		m.Headers.Del("eventbus-dead-redriven")
	}
	return f.Backend.Publish(ctx, msgs)
}
