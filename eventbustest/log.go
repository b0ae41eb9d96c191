package eventbustest

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// A testLog writes to the log of a test until close is called, because t.Log panics after the test
// has ended.
type testLog struct {
	tb testing.TB

	mu     sync.Mutex
	closed bool
}

// handler returns a log handler for failures.
func (l *testLog) handler() slog.Handler {
	return slog.NewTextHandler(l, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	})
}

// Write logs one record.
func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tb.Log(strings.TrimSuffix(string(p), "\n"))
	}
	return len(p), nil
}

func (l *testLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}
