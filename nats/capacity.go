package nats

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// A room is the knowledge of a backend about the free room of a stream with bounds. Publish
// looks for room before it may exceed a bound. If it waited until the server refuses a
// message, the server might store later ones of the same call, because they are smaller, or
// because another process has made room meanwhile.
type room struct {
	bounded atomic.Bool   // the stream has a bound, and belongs to one topic
	bytes   atomic.Int64  // its bound in bytes; 0: none
	newest  atomic.Uint64 // newest known sequence of the stream

	mu     sync.Mutex
	seen   filling   // at the last look
	last   uint64    // last sequence at the last look
	flying load      // is being sent
	heard  time.Time // time of the last look, or of the last answer to a Publish
	vain   time.Time // time of the last look that found nothing to purge
	denied time.Time // when the client was last denied to look or to purge; zero: never
}

// A load is an amount of messages.
type load struct{ messages, bytes int64 }

func (l load) within(room load) bool { return l.messages <= room.messages && l.bytes <= room.bytes }
func (l load) plus(o load) load      { return load{l.messages + o.messages, l.bytes + o.bytes} }
func (l load) minus(o load) load     { return load{l.messages - o.messages, l.bytes - o.bytes} }

const (
	framing    = 128              // bytes that the server stores for a message besides Message.Size, about
	purgeShare = 8                // a purge frees 1/8 of a bound or more, so that it is rare
	spareShare = 16               // 1/16 of a bound is kept free of settled messages, because other processes publish too
	spareLeast = 64               // unless that is fewer messages,
	spareBytes = 64 << 10         // or fewer bytes
	freshFor   = time.Second / 10 // after this time without an answer, the stream may have grown by much
	denialFor  = time.Minute      // time without a look after the client was denied
)

// loadOf returns the load of the messages that are to be sent to p. It leaves out a message
// for which no purge can make room.
func loadOf(p *place, msgs []*backend.Message, places []*place, errs []error) (l load) {
	most := p.room.bytes.Load()
	for i, m := range msgs {
		size := int64(m.Size() + framing)
		if places[i] == p && errs[i] == errTwin && (most == 0 || size <= most) { //nolint:errorlint // a marker, never wrapped
			l.messages++
			l.bytes += size
		}
	}
	return l
}

// learn notes the bounds of the stream of p. c is empty if they are not known.
func (r *room) learn(p *place, c jetstream.StreamConfig) {
	if c.Name != "" && !p.shared() {
		r.bytes.Store(max(c.MaxBytes, 0))
		r.bounded.Store(c.MaxMsgs > 0 || c.MaxBytes > 0)
	}
}

// tooLarge returns an error if a message of a size exceeds the bound of the stream alone.
func (r *room) tooLarge(size int) error {
	if most := r.bytes.Load(); most > 0 && int64(size) > most {
		return fmt.Errorf("%w: %d bytes, more than the %d of the topic", backend.ErrTooLarge, size, most)
	}
	return nil
}

// take counts messages that are about to be sent. It returns false if there may be no room for
// them. Each answer to a Publish tells how many messages others have stored meanwhile.
func (r *room) take(need load) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, grown := r.seen, int64(r.newest.Load()-min(r.last, r.newest.Load()))
	mean := max(now.mean(), need.bytes/max(need.messages, 1))
	now.used = now.used.plus(load{grown, grown * mean}).plus(r.flying)
	r.flying = r.flying.plus(need)
	fresh := time.Since(r.heard) < freshFor
	if time.Since(r.vain) < freshFor {
		return fresh && need.within(now.free())
	}
	return now.excess(need) == 0 && (fresh || now.ample())
}

// land ends the flight of messages after a take.
func (r *room) land(l load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flying, r.heard = r.flying.minus(l), time.Now()
}

// stored notes the sequence of a stored message.
func (r *room) stored(seq uint64) {
	if !r.bounded.Load() {
		return
	}
	for was := r.newest.Load(); seq > was; was = r.newest.Load() {
		if r.newest.CompareAndSwap(was, seq) {
			return
		}
	}
}

// airborne returns the messages that are being sent, except own.
func (r *room) airborne(own load) load {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.flying.minus(own)
	return load{max(l.messages, 0), max(l.bytes, 0)}
}

// found notes how full the stream is, and its last sequence.
func (r *room) found(f filling, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.last, r.heard = f, last, time.Now()
}

// stuck notes that there is nothing to purge.
func (r *room) stuck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vain = time.Now()
}

// failed notes the error of a look, which may be nil. It reports whether the client was
// denied recently.
func (r *room) failed(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, backend.ErrDenied) {
		r.denied = time.Now()
	}
	return !r.denied.IsZero() && time.Since(r.denied) < denialFor
}

// A filling is how full a stream with bounds is. A bound that the stream does not have is
// math.MaxInt64.
type filling struct{ bound, used load }

func newFilling(info jetstream.StreamInfo) filling {
	f := filling{load{math.MaxInt64, math.MaxInt64}, load{int64(info.State.Msgs), int64(info.State.Bytes)}}
	if info.Config.MaxMsgs > 0 {
		f.bound.messages = info.Config.MaxMsgs
	}
	if info.Config.MaxBytes > 0 {
		f.bound.bytes = info.Config.MaxBytes
	}
	return f
}

func (f filling) free() load { return f.bound.minus(f.used) }

// mean returns the mean size of a message in bytes, at least 1.
func (f filling) mean() int64 { return max(f.used.bytes/max(f.used.messages, 1), 1) }

// ample reports whether half of each bound is free.
func (f filling) ample() bool {
	return f.used.messages < f.bound.messages/2 && f.used.bytes < f.bound.bytes/2
}

// excess returns how many messages must go before need fits, if they are of the mean size.
func (f filling) excess(need load) int64 {
	lack := func(bound, used, need, least int64) int64 {
		if spare := bound / spareShare; spare >= least {
			need = max(need, spare)
		}
		if free := bound - used; need > free {
			return max(need-free, bound/purgeShare)
		}
		return 0
	}
	bytes := lack(f.bound.bytes, f.used.bytes, need.bytes, spareBytes)
	return max(lack(f.bound.messages, f.used.messages, need.messages, spareLeast), (bytes+f.mean()-1)/f.mean())
}

// makeRoom makes room for messages that are about to be sent to a topic. It purges messages
// that every group has settled, the oldest first, although they may be younger than Keep. It
// returns false if that is not enough. Several calls at once purge about as much as one.
//
// After a purge the server redelivers held and delayed messages only after their lease, as
// after a purge of Maintain.
func (u *upkeep) makeRoom(ctx context.Context, p *place, need load) (ok bool, err error) {
	if p.room.failed(nil) {
		return false, nil
	}
	defer func() { p.room.failed(err) }()
	for floor := uint64(0); ; {
		var info jetstream.StreamInfo
		if err := u.ask(ctx, "STREAM.INFO."+p.stream, nil, &info); err != nil {
			return false, err
		}
		p.room.learn(p, info.Config)
		f := newFilling(info)
		p.room.found(f, info.State.LastSeq)
		f.used = f.used.plus(p.room.airborne(need))
		fits := load{min(need.messages, f.bound.messages), min(need.bytes, f.bound.bytes)}
		excess, first := f.excess(fits), info.State.FirstSeq
		if excess > 0 && floor == 0 {
			if floor, _, err = u.floor(ctx, p, first); err != nil {
				return false, err
			}
		}
		if excess > 0 && floor < first {
			p.room.stuck()
		}
		if excess == 0 || floor < first {
			return fits.within(f.free()), nil
		}
		if _, err := u.purgeTo(ctx, p, min(floor, first+uint64(excess)-1)); err != nil {
			return false, err
		}
	}
}

// A reservation is the room that a call of Publish needs in a topic.
type reservation struct {
	place *place
	need  load
	full  bool // there is less room, so the server refuses some of the messages
}

// reserve makes room for the messages that are to be sent, in topics with bounds. The caller
// ends the reservations after it has sent the messages.
func (u *upkeep) reserve(ctx context.Context, msgs []*backend.Message, places []*place, errs []error) (all []reservation) {
	for i, p := range places {
		if p == nil || !p.room.bounded.Load() || slices.Contains(places[:i], p) {
			continue
		}
		r := reservation{place: p, need: loadOf(p, msgs, places, errs)}
		if !p.room.take(r.need) {
			ok, err := u.makeRoom(ctx, p, r.need)
			r.full = !ok || err != nil
		}
		all = append(all, r)
	}
	return all
}

// refill makes room for the messages that the server has refused because of a bound, except
// in topics where there is none. It marks these messages to be sent again. It leaves out a
// topic of which a later message may be stored, because the messages would change their order.
func (u *upkeep) refill(ctx context.Context, msgs []*backend.Message, places []*place, errs []error, reserved []reservation) (again bool) {
	for i, p := range places {
		refused := func(j int) bool { return places[j] == p && errors.Is(errs[j], errNoRoom) }
		switch {
		case !refused(i), p.shared():
			continue
		case slices.ContainsFunc(reserved, func(r reservation) bool { return r.place == p && r.full }):
			continue
		}
		trial, ordered := slices.Clone(errs), true
		for j := i; j < len(errs); j++ {
			if refused(j) {
				trial[j] = errTwin
			} else if places[j] == p && !backend.NotStored(errs[j]) {
				ordered = false
			}
		}
		if !ordered {
			continue
		}
		if ok, err := u.makeRoom(ctx, p, loadOf(p, msgs, places, trial)); ok && err == nil {
			copy(errs, trial)
			again = true
		}
	}
	return again
}
