package redisstream

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/seed41896749/eventbus/backend"
)

// A call is one command, and the parser of its reply. Before the call, reply may have empty
// memory, to which the reply is written. If the call fails, err has the reason, and the
// parser reads nothing.
//
// The command is a RawWriteToCmd, because go-redis never repeats such a command, even if
// the options of the lent client ask for retries. A repeated publish could store a message
// twice. A repeated read would skip the messages of the lost reply. go-redis still follows
// MOVED and ASK, because a server with this answer has not run the command.
type call struct {
	args   []any
	script *script // set if args run a script by its digest; nil for another command
	reply  reply
	parser
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
func (sess *session) send(ctx context.Context, calls ...*call) {
	err := sess.do(ctx, func(ctx context.Context) error {
		sess.roundTrip(ctx, calls)
		for i, c := range calls {
			// The server has not run a call with one of these errors, so it is made again.
			// In a pipeline go-redis does not follow MOVED and ASK.
			if isMoved(c.err) && len(calls) > 1 {
				sess.roundTrip(ctx, calls[i:i+1])
			}
			if c.script != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT") {
				c.inFull()
				sess.roundTrip(ctx, calls[i:i+1])
			}
		}
		return nil
	})
	for _, c := range calls {
		switch {
		case err != nil:
			c.err = classify(ctx, err, false)
		case c.err != nil:
			c.err = classify(ctx, c.err, sess.mayHaveSent())
		case len(c.reply.raw) == 0:
			c.err = errNoReply
		default:
			c.rest = c.reply.raw
		}
	}
}

// errNoReply is the error of a command without a reply if go-redis reports no error. An
// example is a command that a hook of the program did not pass on.
var errNoReply = fmt.Errorf("%w: no reply", backend.ErrUnknownOutcome)

func (sess *session) roundTrip(ctx context.Context, calls []*call) {
	if len(calls) == 1 {
		calls[0].err = sess.broker.client.Process(ctx, calls[0].command(ctx))
		return
	}
	cmds := make([]redis.Cmder, len(calls))
	for i, c := range calls {
		cmds[i] = c.command(ctx)
	}
	pipe := sess.broker.client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // it only queues the commands
	_, _ = pipe.Exec(ctx)               // each command has its own error
	for i, c := range calls {
		c.err = cmds[i].Err()
	}
}

// with calls use with a wire from the pool, and then puts the wire back.
func (b *broker) with(ctx context.Context, use func(*session) error) error {
	sess, err := b.sessions.Get(ctx)
	if err != nil {
		return classify(ctx, err, false)
	}
	defer b.sessions.Put(sess)
	return use(sess)
}

// send makes calls on a wire of the pool.
func (b *broker) send(ctx context.Context, calls ...*call) {
	err := b.with(ctx, func(sess *session) error {
		sess.send(ctx, calls...)
		return nil
	})
	if err != nil {
		for _, c := range calls {
			c.err = err
		}
	}
}

// command sends one command, and returns its call.
func (b *broker) command(ctx context.Context, args ...any) *call {
	c := &call{args: args}
	b.send(ctx, c)
	return c
}

// run runs a script, and returns its call.
func (b *broker) run(ctx context.Context, s *script, keys []string, args ...any) *call {
	c := s.call(keys, args...)
	b.send(ctx, c)
	return c
}

// A script is a Lua program in the server. While it runs, the server runs no other command.
// The text of a script is constant and begins with its name and version. Only keys and
// arguments change.
//
// A call names the script by its digest. After a restart or a flush of its scripts, the
// server does not know the digest. It then runs nothing and returns an error. The call is
// made again with the text, and the server remembers it.
type script struct{ text, digest string }

//go:embed lua
var texts embed.FS

var (
	publishScript   = newScript("publish")
	attachScript    = newScript("attach")
	takeScript      = newScript("take")
	ackScript       = newScript("ack")
	delayScript     = newScript("delay")
	extendScript    = newScript("extend")
	leaveScript     = newScript("leave")
	maintainScript  = newScript("maintain")
	resetScript     = newScript("reset")
	deleteScript    = newScript("delete")
	statsScript     = newScript("stats")
	groupsScript    = newScript("groups")
	clockScript     = newScript("clock")
	declareScript   = newScript("declare")
	heartbeatScript = newScript("hear")
	expireScript    = newScript("expire")
	indexScript     = newScript("index")
	pauseScript     = newScript("pause")
	settleScript    = newScript("settle")
	settledScript   = newScript("settled")
)

// newScript returns the script with this name. In its text, the file with/NAME.lua replaces
// each line "-- with NAME". Several scripts share the functions of such a file.
func newScript(name string) *script {
	text := textOf(name)
	for _, part := range []string{"ids", "lease", "count", "instance", "release", "start", "floor", "settings", "now", "members", "gone"} {
		text = strings.Replace(text, "-- with "+part+"\n", textOf("with/"+part), 1)
	}
	return &script{text, redis.NewScript(text).Hash()}
}

func textOf(name string) string {
	text, err := texts.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// call returns a call of the script by its digest.
func (s *script) call(keys []string, args ...any) *call {
	all := append(make([]any, 0, 3+len(keys)+len(args)), "evalsha", s.digest, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	return &call{args: append(all, args...), script: s}
}
