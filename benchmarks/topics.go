package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
)

// A wide is a bus that can have many topics.
type wide interface {
	bus

	// publishTo publishes to one topic that attachAll has made.
	publishTo(ctx context.Context, topic int, payloads [][]byte) error

	// attachAll makes topics 0 to n-1, and attaches a consumer with one handler to each
	// topic.
	attachAll(ctx context.Context, n int, handle func([]byte)) (stop func() error, err error)
}

// topicName returns the name of a topic, such as "orders-7".
func topicName(topic int) string { return "orders-" + strconv.Itoa(topic) }

// topics attaches a handler to each of many topics of one bus, and publishes to all topics.
// The outcome also has the numbers of goroutines and connections after the attaching.
func (t trial) topics(ctx context.Context, b bus, goroutines int) (outcome, error) {
	w, ok := b.(wide)
	if !ok {
		return outcome{}, errors.ErrUnsupported
	}
	var here footprint
	attach := func(ctx context.Context, handle func([]byte)) (func() error, error) {
		stop, err := w.attachAll(ctx, t.cell.n, handle)
		if err == nil {
			here.Goroutines = runtime.NumGoroutine() - goroutines
			if server := t.env.broker(t.target); server != nil {
				here.Connections, err = server.connections(ctx)
			}
		}
		return stop, err
	}
	payloads := make([][]byte, batchSize)
	for i := range payloads {
		payloads[i] = newPayload(t.payload)
	}
	o, err := t.consume(ctx, b, attach, func(c *counter) error {
		return share(preloaders, (t.events+batchSize-1)/batchSize, func(i int) error {
			if err := c.keepUp(ctx, i*batchSize); err != nil {
				return err
			}
			return w.publishTo(ctx, i%t.cell.n, payloads[:min(batchSize, t.events-i*batchSize)])
		})
	})
	o.footprint = here
	return o, err
}

// attachEach attaches to the topics 0 to n-1, one after another. stop ends all consumers.
func attachEach(n int, attach func(topic int) (stop func() error, err error)) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		errs := make([]error, len(stops))
		var next atomic.Int64
		_ = share(min(publishers, len(stops)), len(stops), func(int) error {
			i := next.Add(1) - 1
			errs[i] = stops[i]()
			return nil
		})
		return errors.Join(errs...)
	}
	for topic := range n {
		one, err := attach(topic)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("topic %d: %w", topic, err), stop())
		}
		stops = append(stops, one)
	}
	return stop, nil
}
