// Package request publishes an event and waits for the event that replies to it.
//
// A [Client] publishes requests to any topic. Each request names the topic for its reply, which the
// instances of a program share. Every instance reads this topic with [eventbus.EachInstance] and
// picks out the replies to its own requests. A reply is an ordinary event whose headers say to
// which call of which Client it belongs, so no broker needs a topic, a stream or a connection per
// instance.
//
// Requests are events: they are stored, retried and dead-lettered like any other, and handled at
// least once. A handler calls [Reply], or is made by [Handler]. If there are several replies, the
// first one counts.
package request

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
)

// Headers of requests and replies.
const (
	ReplyTo     = "Reply-To"         // in a request: the topic for the reply
	Deadline    = "Request-Deadline" // in a request: when the caller stops waiting, as RFC 3339
	Correlation = "Correlation-Id"   // in both: identifies the call
	Instance    = "Reply-Instance"   // in both: identifies the Client
	Failed      = "Reply-Error"      // in a reply: "true" if its payload is the text of an error
)

// A Bus is the part of an [eventbus.Bus] that a [Client] uses.
type Bus interface {
	eventbus.Publisher
	eventbus.Subscriber
}

// Options of a [Client]. The zero value is ready to use.
type Options struct {
	// Timeout limits a Do call whose context has no deadline. Default 10 s.
	Timeout time.Duration
}

// A Client sends requests. Its methods are safe for concurrent use.
type Client struct {
	bus     Bus
	topic   string // of the replies
	name    string // of this Client, in the headers Instance
	timeout time.Duration
	sub     *eventbus.Subscription
	late    atomic.Int64

	mu    sync.Mutex
	calls map[string]chan<- *eventbus.Event // by Correlation; a channel gets the first reply
}

// New returns a Client that gets its replies through the topic replies. Its name must be "replies"
// or end with ".replies", because [Reply] publishes to no other topic. The instances of one program
// share the topic; give other programs another one, because every instance reads all of its events.
// ctx limits New only. The Client works until Close or until the bus is shut down.
func New(ctx context.Context, bus Bus, replies string, o Options) (*Client, error) {
	if !isReplies(replies) {
		return nil, fmt.Errorf("request: the topic %q of replies is not named replies, or SOMETHING.replies", replies)
	}
	c := &Client{bus: bus, topic: replies, name: rand.Text(), timeout: o.Timeout, calls: map[string]chan<- *eventbus.Event{}}
	if c.timeout <= 0 {
		c.timeout = 10 * time.Second
	}
	var err error
	c.sub, err = bus.Subscribe(ctx, replies, eventbus.SubscribeOptions{
		Group: eventbus.EachInstance, Order: eventbus.Unordered, Lease: 10 * time.Second, Timeout: 5 * time.Second,
	}, c.receive)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return c, nil
}

func isReplies(topic string) bool { return topic == "replies" || strings.HasSuffix(topic, ".replies") }

// Do publishes e to topic and waits for the first reply. It does not change e. ctx limits the call,
// and its deadline travels with the request: the context of a [Handler] ends then, and unless e has
// a Time or TTL, no handler gets the request later.
//
// If a handler refused the request, or failed for good, the error is an [Error]. If no reply came
// in time, the error matches ctx.Err(), and the request may have been handled.
func (c *Client) Do(ctx context.Context, topic string, e *eventbus.Event) (*eventbus.Event, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
		deadline, _ = ctx.Deadline()
	}
	call, reply := rand.Text(), make(chan *eventbus.Event, 1)
	c.mu.Lock()
	c.calls[call] = reply
	c.mu.Unlock()
	defer c.end(call)
	sent := addressed(e, c.name, call)
	sent.Headers.Set(ReplyTo, c.topic)
	sent.Headers.Set(Deadline, deadline.UTC().Format(time.RFC3339Nano))
	if sent.Time.IsZero() && sent.TTL == 0 {
		sent.Time = time.Now()
		sent.TTL = max(deadline.Sub(sent.Time), time.Millisecond)
	}
	if err := c.bus.Publish(ctx, topic, sent); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	select {
	case r := <-reply:
		if r.Headers.Get(Failed) != "" {
			return nil, &Error{Topic: topic, Text: string(r.Payload)}
		}
		return r, nil
	case <-c.sub.Done():
		return nil, fmt.Errorf("request: waiting for a reply from %s: %w", topic, eventbus.ErrClosed)
	case <-ctx.Done():
		return nil, fmt.Errorf("request: no reply from %s: %w", topic, context.Cause(ctx))
	}
}

// end forgets a call.
func (c *Client) end(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, call)
}

// receive passes a reply to its call, and ignores replies to other instances.
func (c *Client) receive(_ context.Context, d *eventbus.Delivery) error {
	if d.Headers.Get(Instance) != c.name {
		return nil
	}
	call := d.Headers.Get(Correlation)
	c.mu.Lock()
	reply := c.calls[call]
	delete(c.calls, call) // the first reply counts
	c.mu.Unlock()
	if reply == nil {
		c.late.Add(1)
		return nil
	}
	e := d.Event
	reply <- &e
	return nil
}

// Late returns how many replies were dropped because their call had ended or already had a reply.
func (c *Client) Late() int64 { return c.late.Load() }

// Close ends the Client. Calls of Do in progress return [eventbus.ErrClosed]. ctx limits Close.
func (c *Client) Close(ctx context.Context) error { return c.sub.Drain(ctx) }

// An Error is the reply of a handler that refused a request or failed for good.
type Error struct {
	Topic string // of the request
	Text  string // the text of the error, at most 512 bytes
}

func (e *Error) Error() string { return "request: " + e.Topic + " answers: " + e.Text }

// ErrNoRequest means that a delivery is not a request, because its headers don't say where to
// reply.
var ErrNoRequest = errors.New("request: the event does not ask for a reply")

// Reply publishes reply as the answer to the request d. It does not change reply. If it fails,
// return its error from your handler, so that the request is retried. A request that is handled
// twice gets two replies, of which the first counts. If d is not a request, the error is
// [ErrNoRequest].
func Reply(ctx context.Context, p eventbus.Publisher, d *eventbus.Delivery, reply *eventbus.Event) error {
	to := d.Headers.Get(ReplyTo)
	if !isReplies(to) || d.Headers.Get(Correlation) == "" {
		return ErrNoRequest
	}
	return p.Publish(ctx, to, addressed(reply, d.Headers.Get(Instance), d.Headers.Get(Correlation)))
}

// addressed returns a copy of e for a call of a Client.
func addressed(e *eventbus.Event, client, call string) *eventbus.Event {
	sent := *e
	sent.Headers = slices.Clone(e.Headers)
	sent.Headers.Set(Instance, client)
	sent.Headers.Set(Correlation, call)
	return &sent
}
