package nats

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// A server that crashed may have forgotten its last deliveries. It does not answer
// acknowledgements of them, and redelivers their messages as if they were new. So after an
// error that may come from a crash, the member asks the server for the sequence of its last
// delivery.
//
// An era is the time between two of these questions. The answer is about the deliveries of
// the era that ends with the question, and of all eras before. It says nothing about
// deliveries after the question.
type era struct {
	last atomic.Uint64       // the server remembers deliveries up to this sequence
	next atomic.Pointer[era] // nil in the present era
}

func newEra() *era {
	e := new(era)
	e.last.Store(math.MaxUint64)
	return e
}

// forgot returns true if the server is known to have forgotten the delivery of the era e with
// this sequence.
func (e *era) forgot(sequence uint64) bool {
	for ; e != nil; e = e.next.Load() {
		if sequence > e.last.Load() {
			return true
		}
	}
	return false
}

// endEra begins a new era, and returns the one before.
func (s *source) endEra() *era {
	fresh := newEra()
	past := s.era.Swap(fresh)
	past.next.Store(fresh)
	return past
}

// wiped notes that the consumer was deleted, and all its deliveries with it.
func (s *source) wiped() { s.endEra().last.Store(0) }

// recollect asks the server which deliveries of the member the server remembers. If the
// server does not answer, recollect notes no delivery as forgotten. again means that the
// member must ask again later.
func (s *source) recollect(ctx context.Context) (again bool) {
	past := s.endEra()
	info, err := s.info(ctx)
	if err == nil && info.Delivered.Stream > 0 { // 0 is no answer: the server is starting
		past.last.Store(info.Delivered.Stream)
	}
	return err != nil && !errors.Is(err, backend.ErrDenied)
}

// errForgotten means that the server has forgotten a delivery.
var errForgotten = fmt.Errorf("%w: the server has forgotten that it handed it out", backend.ErrLeaseLost)

// forgotten returns errForgotten if the server is known to have forgotten the delivery.
func (r *receipt) forgotten() error {
	if r.era.next.Load() == nil {
		return nil
	}
	if m, err := metaOf(r.reply); err == nil && r.era.forgot(m.sequence) {
		return errForgotten
	}
	return nil
}
