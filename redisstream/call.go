package redisstream

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// A call is one command and the parser of its reply. The caller may set reply to empty memory
// for the reply to be written to. If the call fails, err has the reason, and the parser reads
// nothing.
//
// The command is a RawWriteToCmd, because go-redis never retries such a command, whatever the
// options of the program's client say. Retrying a publish could store a message twice, and
// retrying a read would skip the messages of the lost reply. MOVED and ASK are still followed,
// because a server that replies with them has not run the command.
type call struct {
	args   []any
	script *script // the script that args run by its digest; nil for any other command
	reply  reply
	parser
}

// inFull makes c send the text of its script instead of the digest.
func (c *call) inFull() { c.args[0], c.args[1] = "eval", c.script.text }

func (c *call) command(ctx context.Context) *redis.RawWriteToCmd {
	cmd := redis.NewRawWriteToCmd(ctx, &c.reply, c.args...)
	cmd.SetStepCount(1) // otherwise ClusterClient would ask the server for it, with COMMAND
	return cmd
}

// send makes calls in one round trip. It repeats a call whose script the server did not know,
// and a call whose key has moved to another server. Afterwards each call has an error of its
// own.
func (sess *session) send(ctx context.Context, calls ...*call) {
	err := sess.do(ctx, func(ctx context.Context) error {
		sess.roundTrip(ctx, calls)
		for i, c := range calls {
			// Repeating is safe: a server that replies with one of these errors has not run
			// the call. In a pipeline go-redis does not follow MOVED and ASK itself.
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

// errNoReply is for a command that got neither a reply nor an error of go-redis, for example
// because a hook of the program did not pass it on.
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

// with calls use with a session of the pool.
func (b *broker) with(ctx context.Context, use func(*session) error) error {
	sess, err := b.sessions.Get(ctx)
	if err != nil {
		return classify(ctx, err, false)
	}
	defer b.sessions.Put(sess)
	return use(sess)
}

// send makes calls in one round trip, on a session of the pool.
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

// command sends one command and returns its call.
func (b *broker) command(ctx context.Context, args ...any) *call {
	c := &call{args: args}
	b.send(ctx, c)
	return c
}

// run runs a script and returns its call.
func (b *broker) run(ctx context.Context, s *script, keys []string, args ...any) *call {
	c := s.call(keys, args...)
	b.send(ctx, c)
	return c
}

// A script is a Lua program that runs in the server. While it runs, the server does nothing
// else. The text of a script is constant and begins with its name and version; only keys and
// arguments vary.
//
// A call names the script by its digest. A server that was restarted, or whose scripts were
// flushed, does not know the digest; it then runs nothing and returns an error. The call is
// repeated with the text, which the server remembers.
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
	heartbeatScript = newScript("heartbeat")
	expireScript    = newScript("expire")
	indexScript     = newScript("index")
	pauseScript     = newScript("pause")
	settleScript    = newScript("settle")
	settledScript   = newScript("settled")
)

// newScript returns the script with this name. Each line "-- include NAME" of its text is
// replaced with the functions in include/NAME.lua, which several scripts share.
func newScript(name string) *script {
	text := textOf(name)
	for _, part := range []string{"ids", "lease", "count", "instance", "release", "start", "floor", "settings", "now", "members", "destroy"} {
		text = strings.Replace(text, "-- include "+part+"\n", textOf("include/"+part), 1)
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
