package redisstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// classes maps the server's error replies to error classes, by the beginning of the reply. All
// other error replies are ErrRefused, because the command had no effect.
var classes = []struct {
	err   error
	codes []string
}{
	{backend.ErrGone, []string{"NOGROUP", "UNBLOCKED", "ERR no such key", "ERR The XGROUP subcommand requires the key to exist"}},
	{backend.ErrReplaced, []string{"REPLACED"}}, // from take.lua
	{backend.ErrFull, []string{"FULL", "OOM"}},  // FULL comes from publish.lua
	{backend.ErrDenied, []string{
		"NOPERM", "NOAUTH", "WRONGPASS", "ERR invalid password",
		"ERR The user executing the script can't", "ERR ACL failure in script", // up to Redis 7.0, and from 7.2 on
	}},
	{backend.ErrUnavailable, []string{
		"LOADING", "BUSY ", "READONLY", "MISCONF", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "ERR max number of clients",
		"TRYAGAIN",     // a slot is moving and only some keys of a script exist
		"MOVED", "ASK", // the client has followed as many redirections as it may
	}},
}

// classify adds an error class to err, unless it has one. sent means that a command was written
// to the server, or may have been, so its outcome may be unknown. If ctx is done, the result may
// match ctx.Err() as well.
func classify(ctx context.Context, err error, sent bool) error {
	if backend.Class(err) != nil {
		return err
	}
	if isReply(err) && !errors.Is(err, redis.Nil) {
		return classifyReply(err.Error())
	}
	class := backend.ErrUnknownOutcome
	op, isOp := errors.AsType[*net.OpError](err)
	switch {
	case !sent, isOp && op.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		class = backend.ErrUnavailable
	}
	if done := ctx.Err(); done != nil {
		return fmt.Errorf("%w: %w", class, done)
	}
	return fmt.Errorf("%w: %w", class, err)
}

func classifyReply(text string) error {
	reply := serverError(text)
	if pause, ok := strings.CutPrefix(reply.Error(), "PAUSED "); ok { // from take.lua
		return &backend.PausedError{Pause: readPause([]byte(pause))}
	}
	for _, c := range classes {
		for _, code := range c.codes {
			if strings.HasPrefix(reply.Error(), code) {
				return fmt.Errorf("%w: %w", c.err, reply)
			}
		}
	}
	return fmt.Errorf("%w: %w", backend.ErrRefused, reply)
}

// isReply reports whether the server replied: err is nil or an error reply.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok || err == nil
}

// stripScriptInfo removes from an error reply what Redis adds to it in a script. Redis 7 and
// later add text after the original reply, and 6.2 before it:
//
//	ERR Error running script (call to f_0123): @user_script:14: @user_script: 14: -READONLY You can't …
//	@user_script: 14: -READONLY You can't …
func stripScriptInfo(text string) string {
	const line = "@user_script:"
	if i := strings.LastIndex(text, " script: "); i > 0 && strings.Contains(text[i:], ", on "+line) {
		return strings.TrimSuffix(text[:i], ".")
	}
	i := strings.LastIndex(text, line)
	if i < 0 {
		return text
	}
	_, said, ok := strings.Cut(text[i+len(line):], ": ")
	if !ok {
		return text
	}
	said = strings.TrimPrefix(said, "-")
	if code, _, _ := strings.Cut(said, " "); code == "" || code != strings.ToUpper(code) {
		return "ERR " + said
	}
	return said
}

// isMoved reports whether a Cluster server replied that another server has the key, and
// therefore did not run the command.
func isMoved(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) // HasErrorPrefix allocates
}

// failure adds the operation and the topic to err. After Close the error is ErrClosed.
func (b *Backend) failure(op, topic string, err error) error {
	return failure(b.closed.Load(), op, topic, err)
}

// failure adds the operation and its subject, such as topic/group, to err. If closed is set,
// the result matches ErrClosed. It then still matches ErrUnknownOutcome if err does, because
// Close may have interrupted the call.
func failure(closed bool, op, subject string, err error) error {
	if err == nil {
		return nil
	}
	if closed && errors.Is(err, backend.ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", backend.ErrClosed, err)
	} else if closed {
		err = backend.ErrClosed
	}
	return fmt.Errorf("redisstream: %s: %w", strings.TrimSpace(op+" "+subject), err)
}
