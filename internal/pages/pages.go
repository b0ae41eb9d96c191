// Package pages reads a topic in pages of bounded size, within bounds for all of them.
package pages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Bounds bound all pages of a [Reader] together. A Reader may exceed Bytes by one page. Several
// Readers of one topic may share Bounds, one after another, and know then how large its events are.
type Bounds struct {
	Calls  int       // of Read
	Events int       // that Read returns
	Bytes  int64     // of these events
	Until  time.Time // after which no page begins but the first one; zero: none

	read  int   // events that were read
	bytes int64 // of these
}

// ErrSpent means that the bounds do not allow another page.
var ErrSpent = errors.New("the bounds of the reading are reached")

// A Reader reads one topic, from a place on. It has one caller at a time.
type Reader struct {
	Backend backend.Backend
	Topic   string
	From    backend.Start // where the next page begins
	Bounds  *Bounds       // the rest of them; Next subtracts
	Timeout time.Duration // of one call of the backend
}

// MostPage is the most events of one page.
const MostPage = 100

const (
	firstPage = 4       // a first page is small, because each event may be large
	pageBytes = 2 << 20 // about the most bytes of a page, judged by the events before
)

// Next returns at most most events, and at least one unless the topic ends here. It returns
// [ErrSpent] if the bounds are reached. Another error is the backend's. In each case the next call
// continues at the same place. A panic of the driver becomes an error.
func (r *Reader) Next(ctx context.Context, most int) (ms []backend.Message, err error) {
	b := r.Bounds
	if b.Calls < 1 || b.Events < 1 || b.Bytes < 1 || b.late() {
		return nil, ErrSpent
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			ms, err = nil, fmt.Errorf("the driver has panicked: %v", v)
		}
	}()
	ms, err = backend.Read(ctx, r.Backend, r.Topic, r.From, min(b.size(), b.Events, most))
	b.Calls--
	for i := range ms {
		size := int64(ms[i].Size())
		b.Events, b.Bytes = b.Events-1, b.Bytes-size
		b.read, b.bytes = b.read+1, b.bytes+size
	}
	if err != nil {
		return nil, err
	}
	if len(ms) > 0 {
		r.From = backend.StartAfter(ms[len(ms)-1].Position)
	}
	return ms, nil
}

// late reports whether the time for further pages is over.
func (b *Bounds) late() bool { return b.read > 0 && !b.Until.IsZero() && time.Now().After(b.Until) }

// size returns how many events the next page may have.
func (b *Bounds) size() int {
	if b.read == 0 {
		return firstPage
	}
	average := b.bytes/int64(b.read) + 1
	return int(max(min(pageBytes/average, MostPage, int64(4*b.read)), 1))
}
