package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A writer publishes the records of a Recorder and removes old ones. Only its goroutine uses it.
type writer struct {
	recorder *Recorder
	backend  backend.Backend
	limits   backend.Limits
	stored   map[string]*storedRecords // by topic of records

	reported   int64 // how many dropped records OnDrop knows about
	lastReport time.Time
	failed     error // why old records could not be removed
}

// storedRecords holds the positions of one topic's records that this process keeps, oldest first.
type storedRecords struct {
	positions []string
	known     bool // positions includes the records that were there at the start
}

const (
	reportEvery = 10 * time.Second // the least time between two calls of OnDrop

	batchSize = 256 // records in one call
	readSize  = 500 // messages in one read
)

// run publishes records until the recorder is closed.
func (w *writer) run(ctx context.Context) {
	r := w.recorder
	defer close(r.ended)
	defer r.cancel()
	for records, ok := r.take(); ok; records, ok = r.take() {
		for len(records) > 0 {
			n := min(len(records), batchSize)
			if w.limits.Batch > 0 {
				n = min(n, w.limits.Batch)
			}
			w.publish(ctx, records[:n])
			records = records[n:]
			r.mu.Lock()
			r.sending -= n
			r.mu.Unlock()
		}
		w.report(reportEvery)
	}
	w.report(0)
}

// publish stores records, each in the records topic of its event's topic.
func (w *writer) publish(ctx context.Context, records []Record) {
	msgs := make([]*backend.Message, 0, len(records))
	var drops int64
	var why error
	for i := range records {
		e, err := records[i].event(w.recorder.o.Source)
		if err == nil {
			var m *backend.Message
			if m, err = eventbus.MessageOf(Topic(records[i].Topic), e); err == nil {
				msgs = append(msgs, m)
			}
		}
		if err != nil { // the name of the topic is too long
			drops, why = drops+1, err
		}
	}
	if len(msgs) == 0 {
		w.drop(drops, why)
		return
	}
	err := w.call(ctx, func(ctx context.Context) error { return w.backend.Publish(ctx, msgs) })
	touched := map[string]*storedRecords{}
	for i, m := range msgs {
		s := w.stored[m.Topic]
		if s == nil {
			s = &storedRecords{}
			w.stored[m.Topic] = s
		}
		touched[m.Topic] = s
		switch e := backend.ErrorAt(err, i); {
		case e == nil:
			s.positions = append(s.positions, strings.Clone(m.Position)) // the original may keep the memory of the whole call
		default:
			drops, why = drops+1, e
			s.known = s.known && !errors.Is(e, backend.ErrUnknownOutcome) // it may be stored
		}
	}
	w.drop(drops, why)
	for topic, s := range touched {
		if err := w.trim(ctx, topic, s); err != nil {
			w.failed = fmt.Errorf("lifecycle: trim %s: %w", topic, err)
		}
	}
}

// call calls f with Options.Timeout.
func (w *writer) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.recorder.o.Timeout)
	defer cancel()
	return f(ctx)
}

func (w *writer) drop(n int64, why error) {
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	w.recorder.drop(n, why)
}

// trim removes the oldest records of topic if there are more than MaxRecords plus a tenth.
func (w *writer) trim(ctx context.Context, topic string, s *storedRecords) error {
	if !s.known {
		positions, err := w.find(ctx, topic)
		if err != nil {
			return err
		}
		s.positions, s.known = positions, true
	}
	most := w.recorder.o.MaxRecords
	if len(s.positions) <= most+most/10 {
		return nil
	}
	for len(s.positions) > most {
		n := min(len(s.positions)-most, batchSize)
		err := w.call(ctx, func(ctx context.Context) error { return backend.Remove(ctx, w.backend, topic, s.positions[:n]) })
		if err != nil && !errors.Is(err, backend.ErrGone) {
			return err
		}
		s.positions = s.positions[n:]
	}
	return nil
}

// find returns the positions of all records in topic.
func (w *writer) find(ctx context.Context, topic string) (positions []string, err error) {
	for from := ""; ; {
		var ms []backend.Message
		err := w.call(ctx, func(ctx context.Context) (err error) {
			ms, err = backend.Read(ctx, w.backend, topic, backend.StartAfter(from), readSize)
			return err
		})
		if errors.Is(err, backend.ErrGone) || err == nil && len(ms) == 0 {
			return positions, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range ms {
			if e := eventbus.EventOf(&ms[i]); e.Type == Type {
				positions = append(positions, strings.Clone(e.Position))
			}
		}
		from = ms[len(ms)-1].Position
	}
}

// report calls OnDrop if there is something to report and the last call was at least that long ago.
func (w *writer) report(atLeast time.Duration) {
	w.recorder.mu.Lock()
	n, why := w.recorder.dropped-w.reported, w.recorder.why
	w.recorder.mu.Unlock()
	if time.Since(w.lastReport) < atLeast {
		return
	}
	switch {
	case n > 0:
		w.reported += n
	case w.failed != nil:
		why, w.failed = w.failed, nil
	default:
		return
	}
	w.lastReport = time.Now()
	w.recorder.o.OnDrop(n, why)
}
