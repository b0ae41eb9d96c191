package later

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Clock tells the time of the broker, and never a later time. It asks the broker again
// after the time measureEvery. Its methods have one caller at a time.
type Clock struct {
	backend backend.Backend
	topic   string

	told  time.Time // the time that the broker has told
	heard time.Time // the time of this process when the answer came; zero: none came yet
}

const (
	measureEvery = 10 * time.Second
	trustFor     = 2 * time.Minute      // how long an answer is used while the broker gives no other
	drift        = 2 * time.Millisecond // by which two clocks may differ after measureEvery, and brokers cut times to 1 ms
)

// NewClock returns the clock of the broker of a topic.
func NewClock(b backend.Backend, topic string) *Clock { return &Clock{backend: b, topic: topic} }

// Now returns the present time of the broker, or a time a few milliseconds earlier. If the
// broker does not tell its time, or not to this program, it returns the time of this process.
func (c *Clock) Now(ctx context.Context) (time.Time, error) {
	if c.heard.IsZero() || time.Since(c.heard) > measureEvery {
		if err := c.measure(ctx); err != nil && (c.heard.IsZero() || time.Since(c.heard) > trustFor) {
			return time.Time{}, err
		}
	}
	return c.told.Add(time.Since(c.heard)), nil
}

func (c *Clock) measure(ctx context.Context) error {
	told, err := backend.Now(ctx, c.backend, c.topic)
	if errors.Is(err, backend.ErrGone) {
		told, err = backend.Now(ctx, c.backend, Topic(c.topic))
	}
	switch {
	case errors.Is(err, backend.ErrGone), errors.Is(err, errors.ErrUnsupported), errors.Is(err, backend.ErrDenied):
		told = time.Now()
	case err != nil:
		return err
	}
	c.told, c.heard = told.Add(-drift), time.Now()
	return nil
}
