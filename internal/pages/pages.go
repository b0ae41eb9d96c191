// Package pages reads a topic in pages, with a limit on each page and on all of them together.
package pages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Bounds limit all pages of a [Reader] together; Bytes may be exceeded by one page. Several Readers of a topic can share
// Bounds, one after the other, and then already know how large its events are.
type Bounds struct {
	Calls  int       // of Read
	Events int       // that Read returns
	Bytes  int64     // of these events
	Until  time.Time // after which no page begins but the first one; zero: none

	read  int   // events that were read
	bytes int64 // of these
}

// ErrSpent means that the bounds allow no further page.
var ErrSpent = errors.New("the bounds of the reading are reached")

// A Reader reads one topic from a given position on. It is not safe for concurrent use.
type Reader struct {
	Backend backend.Backend
	Topic   string
	From    backend.Start // where the next page begins
	Bounds  *Bounds       // what is left; Next subtracts
	Timeout time.Duration // of one call of the backend
}

// MostPage is the most events of one page.
const MostPage = 100

const (
	firstPage = 4       // a first page is small, because each event may be large
	pageBytes = 2 << 20 // roughly the most bytes of a page, estimated from earlier events
)

// Next returns up to limit events, and at least one unless the topic ends here. It returns [ErrSpent] when the bounds
// are used up; any other error is the backend's. After an error, the next call continues at the same position. A panic
// of the driver becomes an error.
func (r *Reader) Next(ctx context.Context, limit int) (ms []backend.Message, err error) {
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
	ms, err = backend.Read(ctx, r.Backend, r.Topic, r.From, min(b.size(), b.Events, limit))
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

// late reports whether the time for further pages has run out.
func (b *Bounds) late() bool { return b.read > 0 && !b.Until.IsZero() && time.Now().After(b.Until) }

// size returns how many events the next page may have.
func (b *Bounds) size() int {
	if b.read == 0 {
		return firstPage
	}
	average := b.bytes/int64(b.read) + 1
	return int(max(min(pageBytes/average, MostPage, int64(4*b.read)), 1))
}
