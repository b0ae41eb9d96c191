package redisstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// A call is one command and what came of it. Its reply may come with memory.
//
// The command is a RawWriteToCmd, and so one that go-redis never repeats, whatever the
// options of the lent client: go-redis repeats a publish whose reply was lost, and a
// read, which then returns the messages that come after those it has lost. It does
// follow MOVED and ASK, with which a server says that it has not carried out a command.
type call struct {
	args   []any
	script *script // if args call one by its digest
	reply  reply
	err    error

	unanswered bool // the error is no answer of the server
}

// send makes calls in one round trip, or in more where the server did not know a
// script. Each has its own error afterwards.
func (w *wire) send(ctx context.Context, grace time.Duration, calls ...*call) {
	err := w.do(ctx, grace, func(ctx context.Context) error {
		if len(calls) == 1 {
			w.process(ctx, calls[0])
		} else {
			w.pipeline(ctx, calls)
		}
		for _, c := range calls {
			if c.err == nil {
				continue
			}
			// Neither was carried out. In Cluster a pipeline is not redirected.
			if unknown := isNoScript(c.err) && c.script != nil; unknown || isMoved(c.err) && len(calls) > 1 {
				if unknown {
					c.script.inFull(c.args)
				}
				c.reply.raw = c.reply.raw[:0]
				w.process(ctx, c)
			}
		}
		return nil
	})
	// A node that the client of a Cluster knew before may have no detour.
	sent := err == nil && (w.sent.Load() || !w.took.Load())
	for _, c := range calls {
		if err != nil { // of no call
			c.err = err
		}
		if c.err != nil {
			_, answered := errors.AsType[redis.Error](c.err)
			c.unanswered = !answered
			c.err = classOf(ctx, c.err, sent)
		}
	}
}

func (c *call) command(ctx context.Context) *redis.RawWriteToCmd {
	cmd := redis.NewRawWriteToCmd(ctx, &c.reply, c.args...)
	cmd.SetStepCount(1) // otherwise the client of a Cluster asks for it by COMMAND
	return cmd
}

func (w *wire) process(ctx context.Context, c *call) {
	c.err = w.backend.lent.Process(ctx, c.command(ctx))
}

func (w *wire) pipeline(ctx context.Context, calls []*call) {
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
func (b *Backend) with(ctx context.Context, use func(*wire) error) error {
	w, err := b.wires.Get(ctx)
	if err != nil {
		return classOf(ctx, err, false)
	}
	defer b.wires.Put(w)
	return use(w)
}

// ask makes one call and returns a parser of its reply.
func (b *Backend) ask(ctx context.Context, c *call) (parser, error) {
	err := b.with(ctx, func(w *wire) error {
		w.send(ctx, 0, c)
		return c.err
	})
	return parser{rest: c.reply.raw}, err
}

// run runs a script and returns a parser of its reply.
func (b *Backend) run(ctx context.Context, s *script, keys []string, args ...any) (parser, error) {
	return b.ask(ctx, &call{args: append(s.args(keys...), args...), script: s})
}

// command sends one command and returns a parser of its reply.
func (b *Backend) command(ctx context.Context, args ...any) (parser, error) {
	return b.ask(ctx, &call{args: args})
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
