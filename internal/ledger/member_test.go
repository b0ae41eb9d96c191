package ledger

import (
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A member carries out the effects of a Ledger in a world.
type member struct {
	*world
	name   int
	l      *Ledger
	s      *Source
	places int
	poll   *poll
	reads  bool
	asleep bool // it waits for the effect ReadMore
	paused bool
	alarm  Instant
	acks   []*Hold
	delays []*Hold
	acking bool
	delayg bool
	tick   Instant
	calm   *bool
	keys   map[int]int // runs by key
}

// A poll is a Receive that waits.
type poll struct {
	m     *member
	n     int
	asked Instant
	ended bool
}

// A run is one call of a handler.
type run struct {
	msg   *msg
	stuck bool // the ledger has taken its message
}

func (w *world) join(c Config, calm *bool) {
	m := &member{world: w, name: len(w.members) + 1, l: New(c), places: c.MaxInFlight, calm: calm, keys: map[int]int{}}
	m.l.randN = w.dice.IntN
	m.s = &Source{CanDelay: true, CanExtend: true, Refunds: w.refunds}
	m.l.Now = w.now
	m.l.Add(m.s)
	w.members = append(w.members, m)
	m.fetch()
}

// use runs f on the ledger, and then carries out the effects.
func (m *member) use(f func(l *Ledger)) {
	m.l.Now = m.now
	f(m.l)
	if m.audited {
		if wrong := m.l.check(); wrong != "" {
			panic(wrong)
		}
	}
	out := m.l.Out
	m.l.Out = Effects{}
	m.acks = append(m.acks, out.Acks...)
	if m.places += out.Freed.Settled; out.Freed.Settled > 0 {
		m.in(0, m.fetch) // it may wait for a slot
	}
	if out.FlushAcks {
		m.ack()
	}
	for _, w := range out.Wake {
		m.in(0, func() { m.take(w) })
	}
	for range out.Start {
		w := m.l.NewWorker()
		m.in(0, func() { m.take(w) })
	}
	if next := m.l.Next(); next != 0 && (m.alarm == 0 || next < m.alarm) {
		m.alarm = next
		m.at(next, func() { m.alarm = 0; m.use(func(l *Ledger) { l.Tick(m.now) }) })
	}
	for _, e := range out.Rest {
		m.carryOut(e)
	}
}

func (m *member) carryOut(e Effect) {
	switch e.Kind {
	case GiveBack:
		m.delays = append(m.delays, e.Hold)
		m.delay()
	case Again:
		if e.Hold.Returning() {
			m.delays = append(m.delays, e.Hold)
			m.delay()
		} else {
			m.acks = append(m.acks, e.Hold)
			m.ack()
		}
	case TimedOut:
		m.use(func(l *Ledger) { l.Postpone(e.Hold, m.now.Plus(time.Second), true) })
	case Lost:
		b, _ := m.of(&e.Hold.Delivery)
		if b.owner == m {
			b.owner = nil
		}
		m.note("%d lost by %d: %v", b.id, m.name, e.Err)
	case Stuck: // the run continues beside the next one
		r := e.Run.(*run)
		r.stuck = true
		m.keys[r.msg.key]--
		m.note("%d is stuck in %d", r.msg.id, m.name)
	case Extend:
		m.extend()
	case EndRead:
		if m.poll != nil {
			m.poll.answer(nil, false)
		}
	case ReadMore:
		m.asleep = false
		m.fetch()
	}
}

// fetch reads messages if the ledger wants any.
func (m *member) fetch() {
	if m.reads || m.paused || m.asleep || m.places <= 0 {
		return
	}
	n := 0
	m.use(func(l *Ledger) { n = min(l.Wanted(m.s), m.places) })
	if n == 0 { // until the effect ReadMore
		m.asleep = true
		return
	}
	if m.reads {
		return
	}
	m.reads = true
	m.tick = max(m.tick+1, m.now)
	m.places -= n
	p := &poll{m: m, n: n, asked: m.tick}
	if m.dice.IntN(10) < m.trouble.fails {
		m.in(100*time.Millisecond+m.way(), func() { p.fail() })
		return
	}
	m.in(m.way(), func() {
		m.poll = p
		m.in(lease/3, func() { p.answer(nil, false) })
		p.look()
	})
}

// look answers p if messages are due.
func (p *poll) look() {
	if p.ended {
		return
	}
	if ds := p.m.deliver(p.m, p.n); len(ds) > 0 {
		p.answer(ds, true)
	}
}

// answer ends p with ds. looked says whether the read covered everything that was due.
func (p *poll) answer(ds []backend.Delivery, looked bool) {
	if p.ended {
		return
	}
	p.ended = true
	m := p.m
	m.poll = nil
	if len(ds) > 0 && m.dice.IntN(10) < m.trouble.lost {
		m.in(m.way(), p.fail)
		return
	}
	m.in(m.way(), func() {
		m.places += p.n - len(ds)
		all := looked && len(ds) < p.n
		hs := m.l.Fill(m.s, ds)
		for i := range hs {
			b, present := m.of(&ds[i])
			if present {
				b.owner, b.since = m, m.now
			}
			m.note("%d to %d, attempt %d", b.id, m.name, ds[i].Attempt)
		}
		m.use(func(l *Ledger) {
			r := Receipt{Holds: hs, Asked: p.asked, All: all}
			m.s.CorrectAttempts(r, func(*Hold) {})
			l.Put(m.s, r)
		})
		m.reads = false
		m.fetch()
	})
}

func (p *poll) fail() {
	p.m.reads = false
	p.m.places += p.n
	p.m.fetch()
}

// take makes worker w take its next slice.
func (m *member) take(w *Worker) {
	var hs []*Hold
	m.use(func(l *Ledger) {
		hs, _ = l.Take(w)
		for _, h := range hs {
			b, _ := m.of(&h.Delivery)
			h.Run = &run{msg: b}
		}
	})
	if len(hs) > 0 {
		m.next(w, hs)
	}
}

// next starts the next run of a slice.
func (m *member) next(w *Worker, hs []*Hold) {
	if m.now >= w.Until {
		m.take(w)
		return
	}
	i, ok := w.Begin(m.now)
	if !ok {
		m.take(w)
		return
	}
	h := hs[i]
	r := h.Run.(*run)
	m.begins(r.msg)
	took, after, counts, err := m.outcome()
	m.in(took, func() {
		w.End(i, m.now)
		if !r.stuck {
			m.keys[r.msg.key]--
		}
		m.note("%d ends in %d: %v", r.msg.id, m.name, err)
		if err == nil {
			r.msg.handled = true
			w.Succeeded(i + 1)
			m.next(w, hs)
			return
		}
		m.use(func(l *Ledger) {
			if f := l.Returned(w, h, r, err, false); f.Lost && !f.Decided {
				l.Release(h, LeaseLost(nil))
			} else if !f.Decided {
				if counts {
					l.Failed(h)
				}
				l.Postpone(h, m.now.Plus(max(after, l.Floor(h))), counts)
			}
		})
		m.take(w)
	})
}

// outcome decides how a run ends.
func (m *member) outcome() (took, after time.Duration, counts bool, err error) {
	what, usual := m.dice.IntN(14), 50*time.Millisecond
	if m.quick { // so that workers take slices of many messages
		what, usual = m.dice.IntN(100), 40*time.Microsecond
	}
	if *m.calm {
		what = 13
	}
	switch what {
	case 0:
		return 0, m.upTo(2 * time.Second), true, errRun
	case 1:
		return m.upTo(20 * time.Millisecond), m.upTo(4 * time.Second), false, errRun
	case 2:
		return m.upTo(14 * time.Second), 0, false, nil // stuck, if there is a timeout
	case 3:
		return m.upTo(8 * time.Second), m.upTo(2 * time.Second), true, errRun
	case 4:
		return 0, m.upTo(100 * time.Millisecond), true, errRun
	}
	return m.upTo(usual), 0, false, nil
}

// begins checks a run of b that is about to start.
func (m *member) begins(b *msg) {
	b.runs++
	m.note("%d runs in %d", b.id, m.name)
	for _, before := range m.world.keys[b.key] {
		if before == b {
			break
		}
		if !before.handled && before.owner == m && before.since < m.now {
			m.breaks("member %d runs %d before %d", m.name, b.id, before.id)
		}
	}
	if m.keys[b.key]++; m.keys[b.key] > 1 && b.owner == m {
		m.breaks("member %d runs %d beside another", m.name, b.id)
	}
	if b.acked == m {
		m.breaks("member %d runs %d after its acknowledgement", m.name, b.id)
	}
}

func (m *member) ack() {
	if m.acking || len(m.acks) == 0 {
		return
	}
	hs := m.acks
	m.acks, m.acking = nil, true
	start := m.now
	var ds []backend.Delivery
	for _, h := range hs {
		ds = append(ds, h.Delivery)
	}
	m.call(func() any {
		for i := range ds {
			_ = m.world.ack(&ds[i])
		}
		return nil
	}, func(_ any, err error) {
		m.acking = false
		m.use(func(l *Ledger) {
			for i, h := range hs {
				switch {
				case err == nil:
					b, _ := m.of(&ds[i])
					b.acked = m
					l.Acked(h, start)
				case h.Lost() || errors.Is(err, backend.ErrLeaseLost):
					l.NotAcked(h, err)
				default:
					h.Unsure = h.Unsure || errors.Is(err, backend.ErrUnknownOutcome)
					h.Tries++
					l.Repeat(h, m.now.Plus(200*time.Millisecond))
				}
			}
		})
		m.ack()
		m.fetch()
	})
}

func (m *member) delay() {
	if m.delayg || len(m.delays) == 0 {
		return
	}
	hs := m.delays
	m.delays, m.delayg = nil, true
	var ds []backend.Delivery
	var live []*Hold
	var fors []time.Duration
	m.use(func(l *Ledger) {
		for _, h := range hs {
			if h.Tries > 0 && h.Lost() {
				l.NotDelayed(h, backend.ErrUnknownOutcome)
				continue
			}
			l.BeforeDelay(h, m.refunds)
			live, ds, fors = append(live, h), append(ds, h.Delivery), append(fors, time.Duration(max(h.Due-m.now, 0)))
		}
	})
	m.call(func() any {
		errs := make([]error, len(ds))
		for i := range ds {
			errs[i] = m.world.delay(&ds[i], fors[i], live[i].Counted)
		}
		return errs
	}, func(result any, err error) {
		m.delayg = false
		m.use(func(l *Ledger) {
			for i, h := range live {
				e := err
				if e == nil {
					e = result.([]error)[i]
				}
				switch {
				case e == nil:
					l.Delayed(h, m.now.Plus(fors[i]))
				case errors.Is(e, backend.ErrLeaseLost), h.Lost():
					if errors.Is(e, backend.ErrUnknownOutcome) {
						l.MarkUnknown(h, fors[i])
					}
					l.NotDelayed(h, e)
				default:
					if errors.Is(e, backend.ErrUnknownOutcome) {
						l.MarkUnknown(h, fors[i])
					}
					h.Tries++
					l.Repeat(h, m.now.Plus(200*time.Millisecond))
				}
			}
		})
		m.delay()
		m.fetch()
	})
}

func (m *member) extend() {
	var hs []*Hold
	var ds []backend.Delivery
	m.use(func(l *Ledger) { hs = l.Extendable(m.s) })
	for _, h := range hs {
		ds = append(ds, h.Delivery)
	}
	start := m.now
	m.call(func() any {
		errs := make([]error, len(ds))
		for i := range ds {
			errs[i] = m.world.extend(&ds[i])
		}
		return errs
	}, func(result any, err error) {
		m.use(func(l *Ledger) {
			for i, h := range hs {
				if !l.Answered(h) || err != nil {
					continue
				}
				if e := result.([]error)[i]; e == nil {
					l.Extended(h, start.Plus(lease))
				} else {
					l.NotExtended(h, e)
				}
			}
			l.ExtendIn(map[bool]time.Duration{true: lease / 3, false: lease / 12}[err == nil])
		})
		m.fetch()
	})
}
