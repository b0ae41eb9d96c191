package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
)

// theirs is Watermill's forwarder between its SQL subscriber and its Redis publisher.
type theirs struct {
	s       *servers
	schema  wmsql.DefaultPostgreSQLSchema
	forward *forwarder.Forwarder
	topic   string // of the destination
	queue   string // of the forwarder
}

func openWatermill(batch int) opener {
	return func(_ context.Context, s *servers, run int) (target, error) {
		w := &theirs{s: s, topic: fmt.Sprint("theirs", run), queue: fmt.Sprint("queue", run)}
		w.schema = wmsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch, GeneratePayloadType: func(string) string { return "BYTEA" }}
		from, err := wmsql.NewSubscriber(wmsql.BeginnerFromStdSQL(s.db), wmsql.SubscriberConfig{
			SchemaAdapter: w.schema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
		}, watermill.NopLogger{})
		if err != nil {
			return nil, err
		}
		if err := from.SubscribeInitialize(w.queue); err != nil {
			return nil, err
		}
		to, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: s.redis}, watermill.NopLogger{})
		if err != nil {
			return nil, err
		}
		w.forward, err = forwarder.NewForwarder(from, to, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: w.queue})
		return w, err
	}
}

func (w *theirs) fill(ctx context.Context, n int, payload []byte) error {
	return w.s.transactions(ctx, n, func(tx *sql.Tx, from, to int) error {
		p, err := wmsql.NewPublisher(wmsql.TxFromStdSQL(tx), wmsql.PublisherConfig{SchemaAdapter: w.schema}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		var messages []*message.Message
		for i := from; i < to; i++ {
			m := message.NewMessage(watermill.NewUUID(), payload)
			m.Metadata.Set("key", strconv.Itoa(i%keys))
			messages = append(messages, m)
		}
		return forwarder.NewPublisher(p, forwarder.PublisherConfig{ForwarderTopic: w.queue}).Publish(w.topic, messages...)
	})
}

func (w *theirs) move(ctx context.Context) error {
	if err := w.forward.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (w *theirs) moved(ctx context.Context) (int64, error) {
	return w.s.redis.XLen(ctx, w.topic).Result()
}

func (w *theirs) close(context.Context) error { return w.forward.Close() }
