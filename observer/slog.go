package observer

import (
	"context"
	"errors"
	"log/slog"
)

// Slog returns an Observer that logs failures, dead letters, discards, lost leases, stuck
// handlers, changes of state, and notices of drivers. It logs a panic with its stack. It
// does not log payloads and header values. A nil logger means slog.Default(), looked up
// for each record.
func Slog(logger *slog.Logger) Observer {
	l := logging{logger}
	return Observer{
		DeadLettered: func(e DeadLettered) {
			l.log(slog.LevelError, "event dead-lettered", e.About, "reason", e.Reason, "dead_letter", e.DeadLetter, "error", text(e.Err))
		},
		Discarded: func(e Discarded) {
			l.log(slog.LevelWarn, "event discarded", e.About, "reason", e.Reason, "error", text(e.Err))
		},
		LeaseLost: func(e LeaseLost) {
			l.log(slog.LevelWarn, "lease lost", e.About, "running", e.Running, "error", text(e.Err))
		},
		Stuck: func(e Stuck) {
			l.log(slog.LevelWarn, "handler stuck", e.About, "running", e.Running)
		},
		StateChanged: func(e StateChanged) {
			level := slog.LevelInfo
			if e.To == Degraded || e.Err != nil {
				level = slog.LevelWarn
			}
			l.log(level, "subscription "+string(e.To), About{Topic: e.Topic, Group: e.Group}, "from", string(e.From), "error", text(e.Err))
		},
		Noticed: func(e Noticed) {
			l.log(slog.LevelWarn, e.Text, About{Topic: e.Topic, Group: e.Group}, "error", text(e.Err))
		},
		Failed: func(e Failed) {
			message, stack := string(e.Scope)+" failed", ""
			if p, ok := errors.AsType[*PanicError](e.Err); ok {
				message, stack = "panic", string(p.Stack)
			}
			l.log(slog.LevelError, message, e.About, "events", e.Events, "error", text(e.Err), "stack", stack)
		},
	}
}

// logging writes each occurrence as one record, without empty attributes.
type logging struct{ logger *slog.Logger }

func (l logging) log(level slog.Level, message string, a About, pairs ...any) {
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	var attrs []slog.Attr
	add := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	add("topic", a.Topic)
	add("group", a.Group)
	add("id", a.ID)
	add("position", a.Position)
	if a.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", a.Attempt))
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		if v, ok := pairs[i+1].(string); ok {
			add(name, v)
			continue
		}
		attrs = append(attrs, slog.Any(name, pairs[i+1]))
	}
	logger.LogAttrs(context.Background(), level, "eventbus: "+message, attrs...)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
