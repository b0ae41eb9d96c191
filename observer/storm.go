package observer

import (
	"log/slog"
	"sync"
	"time"
)

// A stormLog limits how many records of a kind are logged. It writes the first three of a
// kind immediately. It holds further records of the next 10 s. At the end of the 10 s it
// writes the newest held record, with the number of held records.
type stormLog struct {
	mu    sync.Mutex
	kinds map[stormKind]*storm
}

// A stormKind is the kind of a record: the fields that records of one kind have in common.
// It has no error text, because error texts of one kind may contain different addresses.
type stormKind struct{ message, topic, group string }

type storm struct {
	began   time.Time
	written int
	held    int
	last    slog.Record // the newest of the held records
	write   func(slog.Record)
}

const (
	stormTime  = 10 * time.Second
	stormBurst = 3
)

// add writes r by write, or holds r if enough records of the kind k were written.
func (l *stormLog) add(k stormKind, r slog.Record, write func(slog.Record)) {
	l.mu.Lock()
	now := time.Now()
	s := l.kinds[k]
	if s == nil || now.Sub(s.began) > stormTime {
		s = &storm{began: now}
		if l.kinds == nil {
			l.kinds = map[stormKind]*storm{}
		}
		l.kinds[k] = s
		time.AfterFunc(stormTime, func() { l.end(k, s) })
	}
	if s.written < stormBurst {
		s.written++
		l.mu.Unlock()
		write(r)
		return
	}
	s.held++
	s.last, s.write = r, write
	l.mu.Unlock()
}

// end forgets s. It writes the newest held record of s, if there is one, with the number of
// held records.
func (l *stormLog) end(k stormKind, s *storm) {
	l.mu.Lock()
	if l.kinds[k] == s {
		delete(l.kinds, k)
	}
	r, held, write := s.last, s.held, s.write
	l.mu.Unlock()
	if held > 0 {
		defer func() { _ = recover() }() // the program's slog.Handler may panic, and no Observer of Safe calls it here
		r.AddAttrs(slog.Int("repeated", held))
		write(r)
	}
}
