package redisstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// A call is one command and what came of it.
type call struct {
	args   []any
	script *script // if args call one by its digest
	reply  reply
	err    error

	unanswered bool // the error is no answer of the server
}

// send makes calls in one round trip, or in two where the server did not know a
// script. Each has its own error afterwards, and its reply until the wire's next
// call. What go-redis itself stops when ctx is done is dialing; what is under way
// on a connection, the wire ends.
func (w *wire) send(ctx context.Context, grace time.Duration, calls ...*call) {
	w.begin()
	defer w.finish()
	w.roundTrip(ctx, grace, calls)
	var again []*call
	for _, c := range calls {
		if c.script != nil && c.err != nil && isNoScript(c.err) {
			c.script.inFull(c.args)
			c.script, c.err, c.reply = nil, nil, reply{}
			again = append(again, c)
		}
	}
	w.classify(ctx, calls)
	if len(again) > 0 {
		w.sent.Store(false) // what was not run was not sent
		w.roundTrip(ctx, grace, again)
		w.classify(ctx, again)
	}
}

// classify says what the errors of calls mean, of one round trip.
func (w *wire) classify(ctx context.Context, calls []*call) {
	for _, c := range calls {
		if c.err != nil {
			_, answered := errors.AsType[redis.Error](c.err)
			c.unanswered = !answered
			c.err = classOf(ctx, c.err, w.sent.Load())
		}
	}
}

func (w *wire) roundTrip(ctx context.Context, grace time.Duration, calls []*call) {
	if c := w.ready(); c != nil {
		w.talk(ctx, grace, c, calls)
		return
	}
	w.watch(ctx, grace)
	w.delegate(ctx, calls)
	if c := w.line.Load(); c != nil {
		c.used = time.Now()
	}
}

// delegate leaves calls to go-redis.
func (w *wire) delegate(ctx context.Context, calls []*call) {
	if len(calls) == 1 {
		c := calls[0]
		c.reply = w.replies.spare()
		c.err = w.client.Process(ctx, redis.NewRawWriteToCmd(ctx, &c.reply, c.args...))
		w.replies.keep(c.reply)
		return
	}
	cmds := make([]redis.Cmder, len(calls))
	for i, c := range calls {
		cmds[i] = redis.NewRawWriteToCmd(ctx, &c.reply, c.args...)
	}
	pipe := w.client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // it only queues
	_, _ = pipe.Exec(ctx)               // each command has its own error
	for i, c := range calls {
		c.err = cmds[i].Err()
	}
}

// ask makes one call on a wire of the pool.
func (b *Backend) ask(ctx context.Context, c *call) error {
	w, err := b.wires.Get(ctx)
	if err != nil {
		return classOf(ctx, err, false)
	}
	defer b.wires.Put(w)
	w.send(ctx, 0, c)
	c.reply = c.reply.clone() // others use the wire now
	return c.err
}

// run runs a script and returns a parser of its reply.
func (b *Backend) run(ctx context.Context, s *script, keys []string, args ...any) (parser, error) {
	c := &call{args: append(s.args(keys...), args...), script: s}
	if err := b.ask(ctx, c); err != nil {
		return parser{}, err
	}
	return c.reply.parse(), nil
}

// command sends one command and returns a parser of its reply.
func (b *Backend) command(ctx context.Context, args ...any) (parser, error) {
	c := &call{args: args}
	if err := b.ask(ctx, c); err != nil {
		return parser{}, err
	}
	return c.reply.parse(), nil
}

// failure is err with the place where it happened; after Close it is ErrClosed,
// beside which an unknown outcome stays visible: Close may have cut off the call.
func (b *Backend) failure(op, topic string, err error) error {
	if err == nil {
		return nil
	}
	if b.closed.Load() {
		err = asClosed(err)
	}
	if topic != "" {
		op += " " + topic
	}
	return fmt.Errorf("redisstream: %s: %w", op, err)
}

func asClosed(err error) error {
	switch {
	case !errors.Is(err, backend.ErrUnknownOutcome):
		return backend.ErrClosed
	case errors.Is(err, backend.ErrClosed):
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrClosed, err)
}
