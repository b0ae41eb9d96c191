package badbus

import (
	"context"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// wrapping has the saboteurs that break the promises about middleware.
var wrapping = []Saboteur{
	{
		Name: "bus-skips-middleware", Breaks: "middleware is accepted, and ignored",
		options: func(o *eventbus.Options) { o.Middleware = nil },
	},
	{
		Name: "bus-skips-publish-middleware", Breaks: "middleware for publishing is accepted, and ignored",
		options: func(o *eventbus.Options) { o.PublishMiddleware = nil },
	},
	{
		Name: "bus-hides-failures", Breaks: "middleware sees a success, whatever the handler returned",
		options: func(o *eventbus.Options) {
			o.Middleware = slices.Clone(o.Middleware)
			for i, m := range o.Middleware {
				o.Middleware[i] = blind(m)
			}
		},
	},
	{
		Name: "bus-strips-dead-letters", Breaks: "a dead letter has the payload, the attributes and the reason",
		backend: func(b backend.Backend) backend.Backend { return &stripping{b} },
	},
}

// blind wraps the middleware m so that m sees no error of a handler.
func blind(m eventbus.Middleware) eventbus.Middleware {
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			var hidden error
			seen := m(func(ctx context.Context, d *eventbus.Delivery) error {
				hidden = next(ctx, d)
				return nil
			})(ctx, d)
			if hidden != nil {
				return hidden
			}
			return seen
		}
	}
}

// stripping is a backend that removes the program's own headers from dead letters.
type stripping struct{ backend.Backend }

func (s *stripping) Unwrap() backend.Backend { return s.Backend }

func (s *stripping) Publish(ctx context.Context, msgs []*backend.Message) error {
	for _, m := range msgs {
		if strings.HasSuffix(m.Topic, ".dlq") {
			m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h backend.Header) bool {
				return !strings.HasPrefix(h.Name, "ce-") && !strings.HasPrefix(h.Name, "eventbus-")
			})
		}
	}
	return s.Backend.Publish(ctx, msgs)
}
