package redisstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// A call is one command and its result. Its reply may have memory to use.
//
// The command is a RawWriteToCmd, because go-redis never repeats such a command, whatever
// the options of the lent client. It would repeat a publish whose reply was lost. It would
// repeat a read too, which then returns the messages after the lost ones. It does follow
// MOVED and ASK, because a server that answers so has not carried out the command.
type call struct {
	args   []any
	script *script // if args call one by its digest
	reply  reply
	err    error
}

// inFull turns a call by digest into one by text.
func (c *call) inFull() { c.args[0], c.args[1] = "eval", c.script.text }

func (c *call) command(ctx context.Context) *redis.RawWriteToCmd {
	cmd := redis.NewRawWriteToCmd(ctx, &c.reply, c.args...)
	cmd.SetStepCount(1) // otherwise the client of a Cluster asks for it by COMMAND
	return cmd
}

// send makes calls in one round trip, or in more if the server did not know a script.
// Afterwards each call has its own error.
func (w *wire) send(ctx context.Context, grace time.Duration, calls ...*call) {
	err := w.do(ctx, grace, func(ctx context.Context) error {
		w.roundTrip(ctx, calls)
		for i, c := range calls {
			// Neither was carried out. In Cluster go-redis does not redirect a pipeline.
			unknown := c.script != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT")
			if unknown {
				c.inFull()
			}
			if unknown || isMoved(c.err) && len(calls) > 1 {
				c.reply.raw = c.reply.raw[:0]
				w.roundTrip(ctx, calls[i:i+1])
			}
		}
		return nil
	})
	// A node that the client of a Cluster knew before it was lent may have no detour. A hook
	// may call the next one with another context.
	sent := err == nil && (w.sent.Load() || !w.took.Load())
	for _, c := range calls {
		failed := cmp.Or(err, c.err)
		if failed == nil && len(c.reply.raw) == 0 {
			failed = errNoReply
		}
		if failed != nil {
			c.err = classOf(ctx, failed, sent)
		}
	}
}

// errNoReply is of a command for which the client reports no error although it had no reply,
// such as one of a pipeline whose connection was refused.
var errNoReply = fmt.Errorf("%w: no reply", backend.ErrUnknownOutcome)

func (w *wire) roundTrip(ctx context.Context, calls []*call) {
	if len(calls) == 1 {
		calls[0].err = w.backend.lent.Process(ctx, calls[0].command(ctx))
		return
	}
	cmds := make([]redis.Cmder, len(calls))
	for i, c := range calls {
		cmds[i] = c.command(ctx)
	}
	pipe := w.backend.lent.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // it only queues
	_, _ = pipe.Exec(ctx)               // each command has its own error
	for i, c := range calls {
		c.err = cmds[i].Err()
	}
}

// with calls use with a wire of the pool.
func (b *broker) with(ctx context.Context, use func(*wire) error) error {
	w, err := b.wires.Get(ctx)
	if err != nil {
		return classOf(ctx, err, false)
	}
	defer b.wires.Put(w)
	return use(w)
}

// send makes calls on a wire of the pool. It returns an error if there was none.
func (b *broker) send(ctx context.Context, calls ...*call) error {
	if len(calls) == 0 {
		return nil
	}
	return b.with(ctx, func(w *wire) error {
		w.send(ctx, 0, calls...)
		return nil
	})
}

// ask makes one call and returns a parser of its reply.
func (b *broker) ask(ctx context.Context, c *call) (parser, error) {
	err := b.send(ctx, c)
	return parser{rest: c.reply.raw}, cmp.Or(err, c.err)
}

// run runs a script and returns a parser of its reply.
func (b *broker) run(ctx context.Context, s *script, keys []string, args ...any) (parser, error) {
	return b.ask(ctx, s.call(keys, args...))
}

// command sends one command whose reply does not matter.
func (b *broker) command(ctx context.Context, args ...any) error {
	_, err := b.ask(ctx, &call{args: args})
	return err
}

// verb returns the result of f, unless the backend is closed. Its error says where it
// happened.
func verb[T any](b *Backend, op, topic string, f func() (T, error)) (v T, err error) {
	if err = b.unusable(); err == nil {
		v, err = f()
	}
	return v, b.failure(op, topic, err)
}

// verb is verb for an f that returns only an error.
func (b *Backend) verb(op, topic string, f func() error) error {
	_, err := verb(b, op, topic, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// failure is err with the place where it happened. After Close it is ErrClosed, beside
// which an unknown outcome stays visible, because Close may have cut off the call.
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
