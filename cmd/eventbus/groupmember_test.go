package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

const (
	groupLease      = 6 * time.Second
	groupPartitions = 16
	memberVariable  = "EVENTBUS_TEST_IS_MEMBER" // the URL of the broker, for a process that is a member
	memberName      = "EVENTBUS_TEST_MEMBER"    // its name
)

func groupOptions() eventbus.Options {
	return eventbus.Options{
		Observer: observer.Observer{Failed: func(observer.Failed) {}},
		Topics:   map[string]eventbus.TopicOptions{"orders": {Partitions: groupPartitions}},
	}
}

// groupMember is the program of a member. It writes a line for each begin and each success of a
// run, and for each partition that it gains, with the time.
func groupMember(rawURL string) error {
	var mu sync.Mutex
	out := bufio.NewWriter(os.Stdout)
	say := func(args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, append(args, time.Now().UnixNano())...)
		out.Flush()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o, name := groupOptions(), os.Getenv(memberName)
	o.Observer.Failed = func(f observer.Failed) {
		if f.Topic == "orders" && f.Events == 0 { // of the partitions
			fmt.Fprintln(os.Stderr, time.Now().Format("05.000"), name, f.Err)
		}
	}
	o.Observer.PartitionMoved = func(e observer.PartitionMoved) {
		say(e.Reason, e.Partition, e.Epoch, name)
	}
	bus, err := eventbus.Open(ctx, rawURL, o, redisstream.Driver{}, nats.Driver{})
	if err != nil {
		return err
	}
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{
		Group: "billing", Concurrency: 8, Lease: groupLease, Retry: eventbus.Retry{Initial: 100 * time.Millisecond},
	}, func(ctx context.Context, d *eventbus.Delivery) error {
		run := fmt.Sprintf("%s-partition-%d-epoch-%d-attempt-%d", name, d.Partition, d.Epoch, d.Attempt)
		say("begin", d.Key, d.ID, run)
		var key int
		i, err := strconv.Atoi(d.ID)
		if _, e := fmt.Sscanf(d.Key, "key-%d", &key); err != nil || e != nil || (7*i+key)%50 == 0 && d.Attempt == 1 {
			return errors.New("fails once")
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		say("done", d.Key, d.ID, run)
		return nil
	})
	if err != nil {
		return err
	}
	return bus.Run(ctx)
}
