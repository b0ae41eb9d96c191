package observer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Slog returns an Observer that logs what an operator should see: failures, drops, first failed
// attempts, dead letters, discards, lost leases, stuck handlers, changes of state, moves of
// partitions, and notices of drivers. Panics are logged with their stack. Payloads and header
// values are never logged. If logger is nil, each line goes to the current slog.Default(). Use one
// Slog per bus.
//
// Slog limits lines by kind. It logs the first line of a kind immediately and counts further ones.
// After 10 s, and then at growing intervals of up to a minute, it logs the newest of them, with the
// attributes "repeated" (their number), "first" and "last" (their times). When the bus stops, it
// logs everything that it has counted.
//
// Failed calls to the backend have one kind per cause, such as a broker that does not answer,
// however many subscriptions are affected. The end of such an outage is logged at once, with the
// attributes "since", "lasted", "failures" and "subscriptions". Lost leases and notices also have
// one kind per cause. All other lines have one kind per topic and group, reason and class of the
// error. The start, the end and the pauses of a subscription are not limited.
func Slog(logger *slog.Logger) Observer {
	l := &logging{logger: logger}
	l.digest.write = l.write
	return Observer{
		Retried: l.retried,
		DeadLettered: func(e DeadLettered) {
			l.add("dead-letter", e.Reason+" "+e.Class, e.About, slog.LevelError, "event dead-lettered",
				"reason", e.Reason, "dead_letter", e.DeadLetter, "error", text(e.Err), "error_class", e.Class)
		},
		Discarded: func(e Discarded) {
			l.add("discard", e.Reason, e.About, slog.LevelWarn, "event discarded", "reason", e.Reason, "error", text(e.Err))
		},
		Dropped: func(e Dropped) {
			l.digest.add(kind{name: "drop"}, logLine{
				level: slog.LevelError, message: "events dropped", about: About{Topic: e.Topic}, at: time.Now(),
				events: e.Events, pairs: []any{"error", text(e.Err)},
			})
		},
		LeaseLost: func(e LeaseLost) {
			l.digest.add(kind{name: "lease", class: causeOf(e.Err)},
				newLine(slog.LevelWarn, "lease lost", e.About, "running", e.Running, "held", e.Held, "error", text(e.Err)))
		},
		Stuck: func(e Stuck) {
			l.add("stuck", "", e.About, slog.LevelWarn, "handler stuck", "running", e.Running)
		},
		StateChanged:   l.stateChanged,
		PartitionMoved: l.partitionMoved,
		Noticed: func(e Noticed) {
			l.digest.add(kind{name: "notice", class: cmp.Or(causeOf(e.Err), e.Text)},
				newLine(slog.LevelWarn, e.Text, About{Topic: e.Topic, Group: e.Group}, "error", text(e.Err)))
		},
		Failed:  l.failed,
		Stopped: func(Stopped) { l.digest.flush() },
	}
}

// logging turns what happens into log records, leaving out empty fields.
type logging struct {
	logger *slog.Logger
	digest digest
}

// add logs a line whose kind includes the topic and the group of a.
func (l *logging) add(name, class string, a About, level slog.Level, message string, pairs ...any) {
	l.digest.add(kind{name, class, a.Topic, a.Group}, newLine(level, message, a, pairs...))
}

// retried logs only the first failed attempt of an event; the others would repeat it.
func (l *logging) retried(e Retried) {
	if e.Outcome == Snooze || e.Attempt > 1 {
		return
	}
	of := any("")
	if e.MaxAttempts > 0 {
		of = e.MaxAttempts
	}
	l.add("retry", e.Class, e.About, slog.LevelWarn, "handler failed", "max_attempts", of, "type", e.Type,
		"next_attempt_in", e.After, "error", text(e.Err), "error_class", e.Class)
}

func (l *logging) partitionMoved(e PartitionMoved) {
	level, message := slog.LevelInfo, "partition gained"
	switch {
	case e.Err != nil:
		level, message = slog.LevelWarn, "partition lost"
	case !e.Gained:
		message = "partition given back"
	}
	l.add("partition", message, About{Topic: e.Topic, Group: e.Group}, level, message, "partition", e.Partition, "epoch", e.Epoch, "error", text(e.Err))
}

func (l *logging) stateChanged(e StateChanged) {
	level := slog.LevelInfo
	if e.To == Degraded || e.From == Degraded && e.To == Running || e.Err != nil {
		level = slog.LevelWarn // the recovery too, for logs that start at this level
	}
	about, at := About{Topic: e.Topic, Group: e.Group}, groupName{e.Topic, e.Group}
	n := newLine(level, "subscription "+string(e.To), about, "from", string(e.From), "error", text(e.Err))
	if e.From == Degraded && l.digest.leave(at, e.To == Running, n.at) && e.To == Running {
		return
	}
	switch cause := causeOf(e.Err); {
	case e.To == Degraded:
		l.digest.degrade(kind{name: cmp.Or(cause, string(Receive))}, at, n)
	case e.To == Limited, e.From == Limited && e.To == Running:
		l.digest.add(kind{name: "limited"}, n)
	case e.From == Degraded && e.To == Running, e.Err != nil:
		l.digest.add(kind{name: string(e.To), class: cause}, n)
	default:
		l.write(n.record())
	}
}

// failed logs a failure. Events that cannot be decoded are left out here, because they are also
// dead-lettered or discarded.
func (l *logging) failed(e Failed) {
	if errors.Is(e.Err, ErrDropped) {
		l.digest.forgetOutages()
	}
	n := newLine(slog.LevelError, string(e.Scope)+" failed", e.About, "error", text(e.Err))
	n.events = e.Events
	if e.Scope == Panic {
		n.message = "panic"
	}
	if p, ok := errors.AsType[*PanicError](e.Err); ok {
		n.pairs = append(n.pairs, "stack", string(p.Stack))
	}
	cause := causeOf(e.Err)
	k := kind{string(e.Scope), cause, e.Topic, e.Group}
	switch e.Scope {
	case Decode:
		return
	case Receive, Ack, Delay, Extend, Maintain:
		k = kind{name: cmp.Or(cause, string(e.Scope))}
	case DeadLettering, Schedule:
		if cause == unreachable {
			k = kind{name: cause}
		}
	}
	l.digest.add(k, n)
}

func (l *logging) write(r slog.Record) {
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	if ctx := context.Background(); logger.Enabled(ctx, r.Level) {
		_ = logger.Handler().Handle(ctx, r) // slog ignores the error too
	}
}

// A logLine is one entry of the log before it is written.
type logLine struct {
	level   slog.Level
	message string
	about   About
	events  int // how many events are affected; 0 is left out
	at      time.Time
	pairs   []any // names and values of attributes; empty texts are left out
}

func newLine(level slog.Level, message string, a About, pairs ...any) logLine {
	return logLine{level: level, message: message, about: a, at: time.Now(), pairs: pairs}
}

// record returns the log record of l, with further attributes at its end. Its time is the time of
// the call.
func (l logLine) record(further ...slog.Attr) slog.Record {
	r := slog.NewRecord(time.Now(), l.level, "eventbus: "+l.message, 0)
	add := func(name, value string) {
		if value != "" {
			r.AddAttrs(slog.String(name, value))
		}
	}
	add("topic", l.about.Topic)
	add("group", l.about.Group)
	add("id", l.about.ID)
	add("position", l.about.Position)
	if l.about.Attempt > 0 {
		r.AddAttrs(slog.Int("attempt", l.about.Attempt))
	}
	if l.events > 0 {
		r.AddAttrs(slog.Int("events", l.events))
	}
	for i := 0; i+1 < len(l.pairs); i += 2 {
		name, _ := l.pairs[i].(string)
		if v, ok := l.pairs[i+1].(string); ok {
			add(name, v)
			continue
		}
		r.AddAttrs(slog.Any(name, l.pairs[i+1]))
	}
	r.AddAttrs(further...)
	return r
}

// text returns err.Error(). The error may be a type of the program, so if its method panics, text
// describes the panic.
func text(err error) (s string) {
	if err == nil {
		return ""
	}
	defer func() {
		if v := recover(); v != nil {
			s = fmt.Sprintf("%T, whose Error panics: %v", err, v)
		}
	}()
	return err.Error()
}
