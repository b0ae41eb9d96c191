package groupstats

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Options are the settings of a [Sampler]. A zero field has the default that its comment names.
type Options struct {
	Interval time.Duration // between rounds; longer if there would be more than 100 calls a second; default: 2 seconds
	Idle     time.Duration // the sampler pauses if nobody has been watching for this long; default: 30 seconds
	Timeout  time.Duration // of one call of the backend; default: 2 seconds
	Behind   time.Duration // the age of the oldest event at which a group is Behind; default: 1 minute
	Stuck    time.Duration // the age of the oldest event at which a group can be Stuck; default: 5 minutes
	Redact   Redact        // applied to dead letters, because a Snapshot has their errors and types; default: none
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Interval, 2 * time.Second},
		{&o.Idle, 30 * time.Second},
		{&o.Timeout, 2 * time.Second},
		{&o.Behind, time.Minute},
		{&o.Stuck, 5 * time.Minute},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return o
}

// A Sampler polls a backend for its groups while somebody is watching, and once a round however
// many are. Its methods are safe for concurrent use.
//
// It runs one goroutine, which ends when nobody has been watching for Options.Idle or when the
// backend is closed. During a round there are up to four more, which query the backend.
type Sampler struct {
	backend backend.Backend
	options Options
	memory  memory // of the goroutine

	mu      sync.Mutex
	looked  time.Time
	running bool
	latest  *Snapshot
	fresh   bool                 // latest is from the current run of the goroutine
	taken   chan struct{}        // closed when a round ends
	wanted  map[string]time.Time // topics whose letters to count, and when somebody last asked for them
	changed []string             // topics whose letters to count again
}

// NewSampler returns a sampler of b. It makes no calls before the first Look.
func NewSampler(b backend.Backend, o Options) *Sampler {
	return &Sampler{
		backend: b, options: o.withDefaults(), latest: &Snapshot{}, taken: make(chan struct{}),
		memory: newMemory(), wanted: map[string]time.Time{},
	}
}

// firstRoundWait is how long a Look waits for the first round after a pause.
const firstRoundWait = 1500 * time.Millisecond

// Look returns the result of the last round, and keeps the sampler running. After a pause it waits for the next round, for
// at most 1.5 seconds or until ctx is done; the Snapshot may then be empty or old.
func (s *Sampler) Look(ctx context.Context) *Snapshot {
	s.mu.Lock()
	s.looked = time.Now()
	if !s.running {
		s.running, s.fresh = true, false
		go s.run(context.WithoutCancel(ctx))
	}
	latest, fresh, taken := s.latest, s.fresh, s.taken
	s.mu.Unlock()
	if fresh {
		return latest
	}
	timer := time.NewTimer(firstRoundWait)
	defer timer.Stop()
	select {
	case <-taken:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// mostWanted limits the topics whose letters are counted although their names do not end with ".dlq".
const mostWanted = 16

// Want makes the sampler count the dead letters of a topic that may have any name, for as long
// as Want keeps being called. If too many topics are wanted, it returns false and changes
// nothing.
func (s *Sampler) Want(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for name, at := range s.wanted {
		if now.Sub(at) > s.options.Idle {
			delete(s.wanted, name)
		}
	}
	if _, ok := s.wanted[topic]; !ok && len(s.wanted) >= mostWanted {
		return false
	}
	s.wanted[topic] = now
	return true
}

// Changed tells the sampler that letters of a topic were removed. The next round starts their count over.
func (s *Sampler) Changed(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.changed, topic) {
		s.changed = append(s.changed, topic)
	}
}

// run takes rounds until nobody is watching anymore.
func (s *Sampler) run(ctx context.Context) {
	for {
		began := time.Now()
		snapshot, calls := s.round(ctx)
		closed := errors.Is(snapshot.Err, backend.ErrClosed)
		s.mu.Lock()
		if snapshot.Err != nil { // keep the stats of the round before
			before := *s.latest
			before.Tried, before.Err = snapshot.Tried, snapshot.Err
			snapshot = &before
		}
		s.latest, s.fresh = snapshot, true
		close(s.taken)
		s.taken = make(chan struct{})
		s.running = !closed
		s.mu.Unlock()
		if closed {
			return
		}

		timer := time.NewTimer(s.pause(time.Since(began), calls))
		<-timer.C // nothing else needs to end the pause, which is short

		s.mu.Lock()
		if time.Since(s.looked) > s.options.Idle {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

const (
	callTime     = 10 * time.Millisecond // 100 calls a second on average
	longestPause = time.Minute
)

// pause returns how long to wait after a round that took so long and made so many calls.
func (s *Sampler) pause(took time.Duration, calls int64) time.Duration {
	period := max(s.options.Interval, min(time.Duration(calls)*callTime, longestPause))
	return max(period-took, s.options.Interval/2)
}

// isOutage reports whether err means that the broker, or a part of it, cannot be reached right now.
func isOutage(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome) || errors.Is(err, backend.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded)
}
