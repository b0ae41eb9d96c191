package badbus

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// replacing has the saboteurs of promises about Options.Instance.
var replacing = []Saboteur{
	{
		Name: "bus-has-no-name", Breaks: "each process is a new one",
		options: func(o *eventbus.Options) { o.Instance = "" },
	},
	{
		Name: "bus-renames-itself", Breaks: "each subscription is a process",
		backend: func(b backend.Backend) backend.Backend { return &renaming{b} },
	},
	{
		Name: "bus-replaces-in-turn", Breaks: "a replaced member attaches again",
		backend: func(b backend.Backend) backend.Backend { return &reviving{b} },
	},
}

// renaming is a backend on which each member is of an incarnation of its own.
type renaming struct{ backend.Backend }

func (r *renaming) Unwrap() backend.Backend { return r.Backend }

func (r *renaming) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	c.Incarnation = rand.Text()
	return r.Backend.Attach(ctx, c)
}

// reviving is a backend that tells a replaced member that its group is lost. The bus then
// attaches again.
type reviving struct{ backend.Backend }

func (r *reviving) Unwrap() backend.Backend { return r.Backend }

func (r *reviving) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := r.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &revivingSource{src}, nil
}

type revivingSource struct{ backend.Source }

func (r *revivingSource) Unwrap() backend.Source { return r.Source }

func (r *revivingSource) Receive(ctx context.Context, max int, bytes int64) ([]backend.Delivery, error) {
	ds, err := r.Source.Receive(ctx, max, bytes)
	if errors.Is(err, backend.ErrReplaced) {
		err = backend.ErrGone
	}
	return ds, err
}
