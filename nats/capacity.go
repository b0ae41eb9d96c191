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

// A capacity is what a backend knows about the free space of a stream with bounds, so that
// Publish can make room before it would exceed a bound. Waiting for the server to refuse a
// message would be too late: the server might store later messages of the same call, because
// they are smaller or because another process has made room in between.
type capacity struct {
	bounded  atomic.Bool   // the stream has a bound, and is of one topic only
	maxBytes atomic.Int64  // its bound in bytes; 0 means none
	newest   atomic.Uint64 // newest known sequence of the stream

	mu         sync.Mutex
	lastUsage  usage     // at the last query
	lastSeq    uint64    // last sequence at the last query
	inFlight   load      // is being sent
	answeredAt time.Time // time of the last query, or of the last answer to a Publish
	nothingAt  time.Time // time of the last query that found nothing to purge
	deniedAt   time.Time // when the client was last denied a query or a purge; zero means never
}

// A load is an amount of messages.
type load struct{ messages, bytes int64 }

func (l load) within(room load) bool { return l.messages <= room.messages && l.bytes <= room.bytes }
func (l load) plus(o load) load      { return load{l.messages + o.messages, l.bytes + o.bytes} }
func (l load) minus(o load) load     { return load{l.messages - o.messages, l.bytes - o.bytes} }

const (
	storedOverhead   = 128              // about how many bytes the server stores for a message besides Message.Size
	purgeShare       = 8                // a purge frees at least 1/8 of a bound, so that purges are rare
	spareShare       = 16               // 1/16 of a bound is kept free, because other processes publish too …
	minSpareMessages = 64               // … unless that is fewer messages
	minSpareBytes    = 64 << 10         // or bytes than these
	freshFor         = time.Second / 10 // after this long without an answer, the stream may have grown a lot
	denialRetry      = time.Minute      // how long to ask nothing after a missing permission
)

// loadOf returns the load of the messages that are to be sent to loc. It leaves out messages
// that are too large for any purge to help.
func loadOf(loc *location, msgs []*backend.Message, locs []*location, errs []error) (l load) {
	most := loc.capacity.maxBytes.Load()
	for i, m := range msgs {
		size := int64(m.Size() + storedOverhead)
		if locs[i] == loc && errs[i] == errPending && (most == 0 || size <= most) { //nolint:errorlint // a marker, never wrapped
			l.messages++
			l.bytes += size
		}
	}
	return l
}

// setBounds records the bounds of a stream. config is empty if they are not known.
func (c *capacity) setBounds(loc *location, config jetstream.StreamConfig) {
	if config.Name != "" && !loc.shared() {
		c.maxBytes.Store(max(config.MaxBytes, 0))
		c.bounded.Store(config.MaxMsgs > 0 || config.MaxBytes > 0)
	}
}

// tooLarge returns an error if a message alone exceeds the bound of the stream.
func (c *capacity) tooLarge(size int) error {
	if most := c.maxBytes.Load(); most > 0 && int64(size) > most {
		return fmt.Errorf("%w: %d bytes, more than the %d of the topic", backend.ErrTooLarge, size, most)
	}
	return nil
}

// tryReserve counts messages that are about to be sent. It returns false if there may be no
// room for them. The answers to earlier messages show how many others have stored in the
// meantime, because they contain sequence numbers.
func (c *capacity) tryReserve(need load) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, grown := c.lastUsage, int64(c.newest.Load()-min(c.lastSeq, c.newest.Load()))
	mean := max(now.mean(), need.bytes/max(need.messages, 1))
	now.used = now.used.plus(load{grown, grown * mean}).plus(c.inFlight)
	c.inFlight = c.inFlight.plus(need)
	fresh := time.Since(c.answeredAt) < freshFor
	if time.Since(c.nothingAt) < freshFor {
		return fresh && need.within(now.free())
	}
	return now.excess(need) == 0 && (fresh || now.ample())
}

// release ends a reservation once the messages are no longer in flight.
func (c *capacity) release(l load) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight, c.answeredAt = c.inFlight.minus(l), time.Now()
}

// advance records the sequence of a stored message.
func (c *capacity) advance(seq uint64) {
	if !c.bounded.Load() {
		return
	}
	for was := c.newest.Load(); seq > was; was = c.newest.Load() {
		if c.newest.CompareAndSwap(was, seq) {
			return
		}
	}
}

// othersInFlight returns the messages in flight, except own.
func (c *capacity) othersInFlight(own load) load {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.inFlight.minus(own)
	return load{max(l.messages, 0), max(l.bytes, 0)}
}

// observe records how full the stream is, and its last sequence.
func (c *capacity) observe(u usage, last uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastUsage, c.lastSeq, c.answeredAt = u, last, time.Now()
}

// nothingToPurge records that no message can be purged.
func (c *capacity) nothingToPurge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nothingAt = time.Now()
}

// recentlyDenied records the error of querying the stream, which may be nil, and reports
// whether the client was denied access within denialRetry.
func (c *capacity) recentlyDenied(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, backend.ErrDenied) {
		c.deniedAt = time.Now()
	}
	return !c.deniedAt.IsZero() && time.Since(c.deniedAt) < denialRetry
}

// A usage is how full a stream with bounds is. A bound that the stream does not have is
// math.MaxInt64.
type usage struct{ limit, used load }

func newUsage(info jetstream.StreamInfo) usage {
	u := usage{load{math.MaxInt64, math.MaxInt64}, load{int64(info.State.Msgs), int64(info.State.Bytes)}}
	if info.Config.MaxMsgs > 0 {
		u.limit.messages = info.Config.MaxMsgs
	}
	if info.Config.MaxBytes > 0 {
		u.limit.bytes = info.Config.MaxBytes
	}
	return u
}

func (u usage) free() load { return u.limit.minus(u.used) }

// mean returns the mean size of a message in bytes, at least 1.
func (u usage) mean() int64 { return max(u.used.bytes/max(u.used.messages, 1), 1) }

// ample reports whether half of each bound is free.
func (u usage) ample() bool {
	return u.used.messages < u.limit.messages/2 && u.used.bytes < u.limit.bytes/2
}

// excess returns how many messages of the mean size must go before need fits.
func (u usage) excess(need load) int64 {
	lack := func(bound, used, need, least int64) int64 {
		if spare := bound / spareShare; spare >= least {
			need = max(need, spare)
		}
		if free := bound - used; need > free {
			return max(need-free, bound/purgeShare)
		}
		return 0
	}
	bytes := lack(u.limit.bytes, u.used.bytes, need.bytes, minSpareBytes)
	return max(lack(u.limit.messages, u.used.messages, need.messages, minSpareMessages), (bytes+u.mean()-1)/u.mean())
}

// makeRoom makes room for messages that are about to be sent to a topic by purging messages
// that every group has settled, oldest first, even if they are younger than Keep. It returns
// false if that is not enough. Concurrent calls together purge about as much as one would.
//
// As after any purge, the server then redelivers held and delayed messages only when their
// lease expires.
func (m *maintainer) makeRoom(ctx context.Context, loc *location, need load) (ok bool, err error) {
	if loc.capacity.recentlyDenied(nil) {
		return false, nil
	}
	defer func() { loc.capacity.recentlyDenied(err) }()
	for floor := uint64(0); ; {
		var info jetstream.StreamInfo
		if err := m.ask(ctx, "STREAM.INFO."+loc.stream, nil, &info); err != nil {
			return false, err
		}
		loc.capacity.setBounds(loc, info.Config)
		u := newUsage(info)
		loc.capacity.observe(u, info.State.LastSeq)
		u.used = u.used.plus(loc.capacity.othersInFlight(need))
		fits := load{min(need.messages, u.limit.messages), min(need.bytes, u.limit.bytes)}
		excess, first := u.excess(fits), info.State.FirstSeq
		if excess > 0 && floor == 0 {
			if floor, _, err = m.floor(ctx, loc, first); err != nil {
				return false, err
			}
		}
		if excess > 0 && floor < first {
			loc.capacity.nothingToPurge()
		}
		if excess == 0 || floor < first {
			return fits.within(u.free()), nil
		}
		if _, err := m.purgeTo(ctx, loc, min(floor, first+uint64(excess)-1)); err != nil {
			return false, err
		}
	}
}

// A reservation is the room that a Publish call needs in a topic.
type reservation struct {
	loc   *location
	need  load
	short bool // there is less room, and the server will refuse some of the messages
}

// reserve makes room for the messages that are to be sent to topics with bounds. The caller
// releases the reservations after sending.
func (m *maintainer) reserve(ctx context.Context, msgs []*backend.Message, locs []*location, errs []error) (all []reservation) {
	for i, loc := range locs {
		if loc == nil || !loc.capacity.bounded.Load() || slices.Contains(locs[:i], loc) {
			continue
		}
		r := reservation{loc: loc, need: loadOf(loc, msgs, locs, errs)}
		if !loc.capacity.tryReserve(r.need) {
			ok, err := m.makeRoom(ctx, loc, r.need)
			r.short = !ok || err != nil
		}
		all = append(all, r)
	}
	return all
}

// refill makes room for messages that the server has refused because of a bound, and marks
// them to be sent again. It skips topics in which there is no room, and topics of which a later
// message may have been stored, because sending again would change the order.
func (m *maintainer) refill(ctx context.Context, msgs []*backend.Message, locs []*location, errs []error, reserved []reservation) (again bool) {
	for i, loc := range locs {
		refused := func(j int) bool { return locs[j] == loc && errors.Is(errs[j], errNoRoom) }
		switch {
		case !refused(i), loc.shared():
			continue
		case slices.ContainsFunc(reserved, func(r reservation) bool { return r.loc == loc && r.short }):
			continue
		}
		trial, ordered := slices.Clone(errs), true
		for j := i; j < len(errs); j++ {
			if refused(j) {
				trial[j] = errPending
			} else if locs[j] == loc && !backend.NotStored(errs[j]) {
				ordered = false
			}
		}
		if !ordered {
			continue
		}
		if ok, err := m.makeRoom(ctx, loc, loadOf(loc, msgs, locs, trial)); ok && err == nil {
			copy(errs, trial)
			again = true
		}
	}
	return again
}
