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

// A call is one command and its result. Before the call, reply may have empty memory, to
// which the reply is written.
//
// The command is a RawWriteToCmd, because go-redis never repeats such a command, even if
// the options of the lent client ask for retries. A repeated publish could store a message
// twice. A repeated read would skip the messages of the lost reply. go-redis still follows
// MOVED and ASK, because a server with this answer has not run the command.
type call struct {
	args   []any
	script *script // set if args run a script by its digest; nil for another command
	reply  reply
	err    error
}

// inFull makes c send the text of its script in place of the digest.
func (c *call) inFull() { c.args[0], c.args[1] = "eval", c.script.text }

func (c *call) command(ctx context.Context) *redis.RawWriteToCmd {
	cmd := redis.NewRawWriteToCmd(ctx, &c.reply, c.args...)
	cmd.SetStepCount(1) // without it, ClusterClient would ask the server for the step count, by COMMAND
	return cmd
}

// send makes calls in one round trip. It repeats a call if the server did not know its
// script, or if its key has moved to another server. After send each call has its own
// error.
func (w *wire) send(ctx context.Context, grace time.Duration, calls ...*call) {
	err := w.do(ctx, grace, func(ctx context.Context) error {
		w.roundTrip(ctx, calls)
		for i, c := range calls {
			again := func() {
				c.reply.raw = c.reply.raw[:0]
				w.roundTrip(ctx, calls[i:i+1])
			}
			// The server has not run a call with one of these errors, so it is made again.
			// In a pipeline go-redis does not follow MOVED and ASK.
			if isMoved(c.err) && len(calls) > 1 {
				again()
			}
			if c.script != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT") {
				c.inFull()
				again()
			}
		}
		return nil
	})
	// If no detour saw the calls, they count as sent, because the lent client may have sent
	// them. A Cluster node that the client knew before New may have no detour. A hook of
	// the program may have replaced the context.
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

// errNoReply is the error of a command without a reply if go-redis reports no error. An
// example is a command in a pipeline whose connection was refused.
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
	_ = pipe.BatchProcess(ctx, cmds...) // it only queues the commands
	_, _ = pipe.Exec(ctx)               // each command has its own error
	for i, c := range calls {
		c.err = cmds[i].Err()
	}
}

// with calls use with a wire from the pool, and then puts the wire back.
func (b *broker) with(ctx context.Context, use func(*wire) error) error {
	w, err := b.wires.Get(ctx)
	if err != nil {
		return classOf(ctx, err, false)
	}
	defer b.wires.Put(w)
	return use(w)
}

// send makes calls on a wire of the pool. It returns an error only if it got no wire; other
// errors are in the calls.
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

// verb calls f, and adds the operation and the topic to its error. If the backend is
// closed, verb returns ErrClosed and does not call f.
func verb[T any](b *Backend, op, topic string, f func() (T, error)) (v T, err error) {
	if err = b.unusable(); err == nil {
		v, err = f()
	}
	return v, b.failure(op, topic, err)
}

// verb calls the function verb with an f that returns only an error.
func (b *Backend) verb(op, topic string, f func() error) error {
	_, err := verb(b, op, topic, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// failure adds the operation and the topic to err. After Close the error is ErrClosed. It
// then also matches ErrUnknownOutcome if err does, because Close may have interrupted the
// call.
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
