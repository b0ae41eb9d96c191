package badbus

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// dividing has the saboteurs that break promises about partitions.
var dividing = []Saboteur{
	{
		Name: "bus-leases-partitions-long", Breaks: "a partition that changes its owner leaves events behind",
		backend: attaching(func(c *backend.Config) func(backend.Source) backend.Source {
			if strings.Contains(c.Topic, ".partition-") {
				c.Lease *= 6
			}
			return nil
		}),
	}, {
		Name: "bus-owns-alone", Breaks: "every member owns all partitions",
		backend: attaching(func(c *backend.Config) func(backend.Source) backend.Source {
			if isOfOwners(c) {
				c.Group = strings.ToLower(rand.Text())
			}
			return nil
		}),
	}, {
		Name: "bus-keeps-partitions", Breaks: "a partition belongs to its owner, dead or alive",
		backend: attaching(func(c *backend.Config) func(backend.Source) backend.Source {
			if isOfOwners(c) {
				c.Lease *= 100
			}
			return nil
		}),
	}, {
		Name: "bus-forgets-epochs", Breaks: "all owners of a partition are equal",
		backend: attaching(func(c *backend.Config) func(backend.Source) backend.Source {
			if !isOfOwners(c) {
				return nil
			}
			return func(s backend.Source) backend.Source { return &uncounted{s} }
		}),
	}, {
		Name: "bus-forgets-failed-keys", Breaks: "what has failed is the business of its owner",
		backend: func(b backend.Backend) backend.Backend { return &keyless{b} },
	}, {
		Name: "bus-forgets-the-unsettled", Breaks: "what was published is settled",
		backend: func(b backend.Backend) backend.Backend { return &contented{b} },
	}, {
		Name: "bus-begins-epochs-anew", Breaks: "another number of partitions is another topic",
		backend: func(b backend.Backend) backend.Backend { return &young{b} },
	}, {
		Name: "bus-trusts-its-claims", Breaks: "an owner stays an owner until it hears otherwise",
		backend: attaching(func(c *backend.Config) func(backend.Source) backend.Source {
			if !isOfOwners(c) && !strings.Contains(c.Topic, ".partition-") {
				return nil
			}
			return func(s backend.Source) backend.Source { return &trusting{s} }
		}),
	},
}

func isOfOwners(c *backend.Config) bool { return strings.HasSuffix(c.Topic, ".partitions.owners") }

// attaching changes the Config of each Attach, and perhaps the Source that it returns.
func attaching(change func(*backend.Config) func(backend.Source) backend.Source) func(backend.Backend) backend.Backend {
	return func(b backend.Backend) backend.Backend { return &attacher{b, change} }
}

type attacher struct {
	backend.Backend
	change func(*backend.Config) func(backend.Source) backend.Source
}

func (a *attacher) Unwrap() backend.Backend { return a.Backend }

func (a *attacher) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	wrap := a.change(&c)
	s, err := a.Backend.Attach(ctx, c)
	if err == nil && wrap != nil {
		s = wrap(s)
	}
	return s, err
}

// uncounted is a source whose deliveries are all the first.
type uncounted struct{ backend.Source }

func (u *uncounted) Unwrap() backend.Source { return u.Source }

func (u *uncounted) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := u.Source.Receive(ctx, max, maxBytes)
	for i := range ds {
		ds[i].Attempt = 1
	}
	return ds, err
}

// A keyless backend has no failed keys of partitions.
type keyless struct{ backend.Backend }

func (k *keyless) Unwrap() backend.Backend { return k.Backend }

func (k *keyless) Read(ctx context.Context, topic string, from backend.Start, max int) ([]backend.Message, error) {
	if strings.HasSuffix(topic, ".partitions.failed") {
		return nil, backend.ErrGone
	}
	return backend.Read(ctx, k.Backend, topic, from, max)
}

// A contented backend has only settled messages in partitions.
type contented struct{ backend.Backend }

func (c *contented) Unwrap() backend.Backend { return c.Backend }

func (c *contented) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	s, err := backend.StatsOf(ctx, c.Backend, topic, group)
	if strings.Contains(topic, ".partition-") {
		s.Lag, s.Unacked, s.InFlight, s.Delayed = 0, 0, 0, 0
	}
	return s, err
}

// A young backend knows no epochs from before a change of the number of partitions.
type young struct{ backend.Backend }

func (y *young) Unwrap() backend.Backend { return y.Backend }

func (y *young) Read(ctx context.Context, topic string, from backend.Start, max int) ([]backend.Message, error) {
	ms, err := backend.Read(ctx, y.Backend, topic, from, max)
	if strings.HasSuffix(topic, ".partitions") {
		for i := range ms {
			ms[i].Payload = bytes.ReplaceAll(ms[i].Payload, []byte(`"epochs"`), []byte(`"past"`))
		}
	}
	return ms, err
}

// trusting is a source whose leases are extended, also if the broker does not answer.
type trusting struct{ backend.Source }

func (t *trusting) Unwrap() backend.Source { return t.Source }

func (t *trusting) Extend(ctx context.Context, ds []*backend.Delivery) error {
	v, _ := backend.As[backend.Extender](t.Source)
	if err := v.Extend(ctx, ds); !errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	return nil
}
