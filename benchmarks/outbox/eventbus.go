package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/outbox"
	"github.com/seed41896749/eventbus/redisstream"
)

// ours is the relay of package outbox, with default options.
type ours struct {
	s     *servers
	db    *sql.DB
	ob    *outbox.Outbox
	bus   *eventbus.Bus
	topic string
}

func openOutbox(ctx context.Context, s *servers, run int) (target, error) {
	table := fmt.Sprint("outbox", run)
	schema, err := outbox.Schema(outbox.Postgres, table)
	if err != nil {
		return nil, err
	}
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		return nil, err
	}
	ob, err := outbox.New(s.db, outbox.Postgres, outbox.Options{Table: table})
	if err != nil {
		return nil, err
	}
	bus, err := eventbus.Open(ctx, "redis://"+s.redisAddr, eventbus.Options{}, redisstream.Driver{})
	return &ours{s, s.db, ob, bus, fmt.Sprint("ours", run)}, err
}

func (o *ours) fill(ctx context.Context, n int, payload []byte) error {
	return o.s.transactions(ctx, n, func(tx *sql.Tx, from, to int) error {
		var events []*eventbus.Event
		for i := from; i < to; i++ {
			events = append(events, &eventbus.Event{Key: strconv.Itoa(i % keys), Payload: payload})
		}
		return o.ob.In(tx).Publish(ctx, o.topic, events...)
	})
}

func (o *ours) move(ctx context.Context) error { return o.ob.Relay(ctx, o.bus) }

func (o *ours) moved(ctx context.Context) (int64, error) {
	return o.s.redis.XLen(ctx, "bus:{"+o.topic+"}").Result()
}

func (o *ours) close(ctx context.Context) error {
	err := o.bus.Shutdown(ctx)
	if stats, statsErr := o.ob.Stats(ctx); statsErr != nil || stats.Waiting+stats.Refused > 0 {
		err = errors.Join(err, statsErr, fmt.Errorf("%d rows are left, %d are refused", stats.Waiting, stats.Refused))
	}
	return err
}
