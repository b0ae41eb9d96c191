package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// A NumberError says that a program states another number of partitions than the broker has.
type NumberError struct {
	Topic          string
	Stored, Stated int
}

// Error names both numbers, and the way to change the stored one.
func (e *NumberError) Error() string {
	return fmt.Sprintf("topic %s has %d partitions, and this program states %d: state %d, or publish to a new topic with another number, see docs/partitions.md",
		e.Topic, e.Stored, e.Stated, e.Stored)
}

// Agree stores the number of partitions of topic, unless one is stored. If another number is
// stored, the error is a *NumberError. The first message of the topic decides, so that
// programs that begin at the same time have the same result.
func Agree(ctx context.Context, b backend.Backend, topic string, n int) error {
	stored, err := Number(ctx, b, topic)
	if err == nil && stored == 0 {
		m := &backend.Message{
			Topic: NumberTopic(topic), ID: "partitions", Payload: []byte(strconv.Itoa(n)),
			Once: backend.LimitsOf(b).OnceWindow > 0, OnceKey: "partitions",
		}
		if err = b.Publish(ctx, []*backend.Message{m}); err == nil || errors.Is(err, backend.ErrUnknownOutcome) {
			stored, err = Number(ctx, b, topic)
		}
		if err == nil && stored == 0 {
			err = backend.ErrUnknownOutcome
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("the number of partitions of %s: %w", topic, backend.ErrorAt(err, 0))
	case stored != n:
		return &NumberError{Topic: topic, Stored: stored, Stated: n}
	}
	return nil
}

// Number returns the number of partitions of topic that is stored; 0: none is.
func Number(ctx context.Context, b backend.Backend, topic string) (int, error) {
	ms, err := backend.Read(ctx, b, NumberTopic(topic), backend.StartEarliest, 1)
	if errors.Is(err, backend.ErrGone) || err == nil && len(ms) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	text := strings.Clone(string(ms[0].Payload))
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > Most {
		return 0, fmt.Errorf("%w: the first message of %s is %q, which is no number of partitions", backend.ErrRefused, NumberTopic(topic), text)
	}
	return n, nil
}
