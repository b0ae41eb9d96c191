// Package eventbus publishes events and delivers them to handlers, through a broker that you
// can exchange by changing one line: in memory, in a file, Redis Streams, NATS JetStream, or a
// backend of your own.
//
// A program opens a bus, subscribes handlers, publishes events and runs until it is asked to stop:
//
//	bus, err := eventbus.Open(ctx, "mem:", eventbus.Options{}, inmemory.Driver{})
//	if err != nil {
//		return err
//	}
//	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"},
//		func(ctx context.Context, d *eventbus.Delivery) error {
//			return charge(ctx, d.Payload)
//		})
//	if err != nil {
//		return err
//	}
//	err = bus.Publish(ctx, "orders", &eventbus.Event{Key: "ada", Payload: order})
//	if err != nil {
//		return err
//	}
//	return bus.Run(ctx) // until ctx ends; then it waits for running handlers
//
// To move this program to Redis, pass redisstream.Driver{} and the URL of your server to
// [Open]. Retries, ordering, limits and graceful shutdown live in the bus, so they behave the
// same on every backend.
//
// # Topics, groups and members
//
// Events are published to a topic. Every group that subscribes to the topic gets every event,
// and the members of a group share them: start the program above three times, and each order
// is charged by one of the three processes. A group keeps its position in the broker while no
// member is running. A new group begins with the oldest event that the topic still has, unless
// you set SubscribeOptions.Start. With [EachInstance] as the group, every instance of the program
// gets every event, for example to invalidate a cache.
//
// One subscription can read many topics, by a list or by a pattern such as "orders.*"; see
// [Bus.Subscribe].
//
// # Handling events
//
// A [Handler] that returns nil has handled its event. After an error or a panic the event is
// delivered again, by default 12 times over about 27 minutes ([Retry]), and then moved to the
// dead-letter topic, here "orders.dlq", along with the reason ([DeadLetter]). A handler can
// choose another outcome by the error that it returns: [Permanent] skips the remaining
// attempts, [RetryAfter] sets the delay, [Snooze] postpones the event without counting an
// attempt, and [Drop] discards it. Retry.Rules does the same by class of error.
//
// Delivery is at least once. A handler may see an event again, for instance when a process
// dies after handling an event but before acknowledging it, so make its effect idempotent. With
// [AckOnReceive] delivery is at most once instead.
//
// While a handler runs, its member holds a lease on the event and keeps extending it. If the
// process dies, the lease expires (after 30 seconds by default) and another member gets the
// event.
//
// # Order and concurrency
//
// Events with the same Event.Key are handled one after another within a member, retries
// included; other keys do not wait for them. This holds for any SubscribeOptions.Concurrency,
// which is 1 by default. To keep the order of a key across all members of a group, give the
// topic partitions ([TopicOptions]). [Unordered] and [OrderTotal] are the alternatives.
//
// Besides [Bus.Subscribe], [Bus.SubscribeBatch] handles many events in one call, and
// [Bus.SubscribeManual] lets the program settle events later, from any goroutine. [PerWorker]
// gives each concurrent call a handler with state of its own.
//
// # Typed events
//
// A [Topic] ties a topic to a Go type, so that handlers and publishers deal in values:
//
//	var orders = eventbus.Topic[Order]{
//		Name: "orders", Type: "order.placed", Key: func(o Order) string { return o.Customer },
//	}
//
//	err := orders.Publish(ctx, bus, Order{Customer: "ada", Cents: 1200})
//
// [ByType] handles several types of events in one group.
//
// # Publishing
//
// [Bus.Publish] returns when the events are stored as durably as the backend can store them.
// It waits out short failures of the broker. An error that matches [ErrUnknownOutcome] means
// that the event may be stored; set Options.Dedup to repeat such calls safely. [Bus.PublishAt],
// [Bus.PublishIn] and [Bus.Recur] publish at a later time, once or repeatedly.
//
// # Operating a bus
//
// [Bus.Run] and [Bus.Serve] keep a program running until its context ends, and then shut it
// down gracefully. [Bus.Ready] suits a readiness probe. Options.Observer reports what happens,
// to a log by default, or to traces and metrics by package observer/telemetry. Middleware
// changes how events are handled; package middleware has timeouts, deduplication, encryption
// and others. Package deadletter lists dead letters and sends them back to their group.
//
// With package eventbustest you test handlers without a broker and without waiting.
package eventbus
