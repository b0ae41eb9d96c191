package survey

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
)

const (
	maxCounted     = 1000     // the most events counted by reading
	maxBytes       = 16 << 20 // the most bytes of them, because all topics share one timeout
	maxLetters     = 100_000
	maxLetterBytes = 128 << 20
	firstPage      = 10 // each further page is twice as large, up to lastPage
	lastPage       = 100
)

// letters counts dead letters by the group that failed; nil: their numbers are unknown.
type letters map[string]Count

func (l letters) of(group string) Count {
	if l == nil {
		return backend.Unknown
	}
	return l[group]
}

// deadLetters counts the letters of a dead-letter topic by reading, up to maxLetters and
// maxLetterBytes, and for at most half of the time that ctx leaves.
func (s *Survey) deadLetters(ctx context.Context, topic string) (letters, error) {
	n := letters{}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Until(deadline)/2, errEnough)
		defer cancel()
	}
	all, err := s.read(ctx, topic, maxLetters, maxLetterBytes, func(m *backend.Message) { n[m.Headers.Get(letter.Group)]++ })
	if !all || errors.Is(context.Cause(ctx), errEnough) {
		return nil, err
	}
	return n, err
}

// counted counts the events of a topic by reading, up to maxCounted and maxBytes.
func (s *Survey) counted(ctx context.Context, topic string) (Count, error) {
	n := Count(0)
	all, err := s.read(ctx, topic, maxCounted, maxBytes, func(*backend.Message) { n++ })
	if !all {
		n = backend.Unknown
	}
	return n, err
}

// read calls do for the events of a topic, and reports whether it has read all of them within
// the bounds. A topic that does not exist has no events.
func (s *Survey) read(ctx context.Context, topic string, most, mostBytes int, do func(*backend.Message)) (all bool, err error) {
	if s.reader == nil {
		return false, nil
	}
	n, size, from := 0, 0, backend.StartEarliest
	for page := firstPage; n <= most && size <= mostBytes; page = min(2*page, lastPage) {
		ms, err := s.reader.Read(ctx, topic, from, page)
		switch {
		case errors.Is(err, backend.ErrGone):
			return true, nil
		case errors.Is(err, errors.ErrUnsupported), errors.Is(context.Cause(ctx), errEnough):
			return false, nil
		case err != nil:
			return false, err
		case len(ms) == 0:
			return true, nil
		}
		n += len(ms)
		for i := range ms {
			size += ms[i].Size()
			do(&ms[i])
		}
		from = backend.StartAfter(ms[len(ms)-1].Position)
	}
	return false, nil
}

var errEnough = errors.New("half of the time is over")
