package observer

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Slog returns an Observer that logs the occurrences that an operator should see:
// failures, drops, dead letters, discards, lost leases, stuck handlers, changes of state,
// and notices of drivers. A panic is logged with its stack. If logger is nil, each record
// goes to the slog.Default() of its time. Payloads and header values are not logged.
//
// Some occurrences come in large numbers: failures that concern no single event, drops, and
// changes to and from the states degraded and limited. Of each kind only the first three in
// 10 s are logged for each topic and group. If there were more, the newest is logged at the
// end of the 10 s, with their number as "repeated".
func Slog(logger *slog.Logger) Observer {
	l := &logging{logger: logger}
	return Observer{
		DeadLettered: func(e DeadLettered) {
			l.log(slog.LevelError, "event dead-lettered", e.About, "reason", e.Reason, "dead_letter", e.DeadLetter, "error", text(e.Err))
		},
		Discarded: func(e Discarded) {
			l.log(slog.LevelWarn, "event discarded", e.About, "reason", e.Reason, "error", text(e.Err))
		},
		Dropped: func(e Dropped) {
			l.oneOfMany("dropped")(slog.LevelError, "events dropped", About{Topic: e.Topic}, "events", e.Events, "error", text(e.Err))
		},
		LeaseLost: func(e LeaseLost) {
			l.log(slog.LevelWarn, "lease lost", e.About, "running", e.Running, "held", e.Held, "error", text(e.Err))
		},
		Stuck: func(e Stuck) {
			l.log(slog.LevelWarn, "handler stuck", e.About, "running", e.Running)
		},
		StateChanged: func(e StateChanged) {
			level := slog.LevelInfo
			if e.To == Degraded || e.From == Degraded && e.To == Running || e.Err != nil {
				level = slog.LevelWarn // the recovery too, for logs that begin at this level
			}
			log := l.log
			for _, s := range []State{Degraded, Limited} {
				if e.To == s || e.From == s {
					log = l.oneOfMany(string(s))
				}
			}
			log(level, "subscription "+string(e.To), About{Topic: e.Topic, Group: e.Group}, "from", string(e.From), "error", text(e.Err))
		},
		Noticed: func(e Noticed) {
			l.log(slog.LevelWarn, e.Text, About{Topic: e.Topic, Group: e.Group}, "error", text(e.Err))
		},
		Failed: func(e Failed) {
			message, stack := string(e.Scope)+" failed", ""
			if p, ok := errors.AsType[*PanicError](e.Err); ok {
				message, stack = "panic", string(p.Stack)
			}
			log := l.log
			if e.About.ID == "" && e.About.Position == "" {
				log = l.oneOfMany(message)
			}
			log(slog.LevelError, message, e.About, "events", e.Events, "error", text(e.Err), "stack", stack)
		},
	}
}

// logging writes each occurrence as one record, without empty fields.
type logging struct {
	logger *slog.Logger
	storms stormLog
}

type logFunc func(level slog.Level, message string, a About, pairs ...any)

func (l *logging) log(level slog.Level, message string, a About, pairs ...any) {
	l.write(record(level, message, a, pairs))
}

// oneOfMany returns a function that logs occurrences of a kind through the stormLog, which
// limits their number.
func (l *logging) oneOfMany(kind string) logFunc {
	return func(level slog.Level, message string, a About, pairs ...any) {
		l.storms.add(stormKind{kind, a.Topic, a.Group}, record(level, message, a, pairs), l.write)
	}
}

func (l *logging) write(r slog.Record) {
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	if ctx := context.Background(); logger.Enabled(ctx, r.Level) {
		_ = logger.Handler().Handle(ctx, r) // as slog does
	}
}

func record(level slog.Level, message string, a About, pairs []any) slog.Record {
	r := slog.NewRecord(time.Now(), level, "eventbus: "+message, 0)
	add := func(name, value string) {
		if value != "" {
			r.AddAttrs(slog.String(name, value))
		}
	}
	add("topic", a.Topic)
	add("group", a.Group)
	add("id", a.ID)
	add("position", a.Position)
	if a.Attempt > 0 {
		r.AddAttrs(slog.Int("attempt", a.Attempt))
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		if v, ok := pairs[i+1].(string); ok {
			add(name, v)
			continue
		}
		r.AddAttrs(slog.Any(name, pairs[i+1]))
	}
	return r
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
