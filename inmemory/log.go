package inmemory

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// A log keeps messages by offset, in pages.
//
// It has a lock of its own, so that those who publish wait neither for those who
// read nor for those who acknowledge. What is below next changes only with the
// topic's lock held too: with that, it may be looked at without this one.
type log struct {
	next   atomic.Uint64 // behind the last that readers see; changes with the lock held
	ledger *ledger       // of the backend
	spare  *spare[page]

	mu      sync.Mutex // guards all that follows; taken after the topic's
	end     uint64     // the next to be stored: next, but during a publish, as readers see all of that or nothing
	first   uint64     // the oldest kept
	pages   []*page
	used    place // by the last page that is full: what the next is expected to need
	readers int   // groups, which will have to settle what is stored
	marks   marks
}

// init is called with the directory's lock held. The first offset is at least 1, so
// that every position is greater than zero's.
func (l *log) init(b *Backend) {
	l.ledger, l.spare, l.marks = &b.ledger, &b.pages, newMarks(b.options.OnceWindow)
	l.first = max(b.directory.used, 1)
	l.end = l.first
	l.next.Store(l.end)
}

func (l *log) len() int64 { return int64(l.next.Load() - l.first) }

// page returns the page of an offset from first to end-1.
func (l *log) page(offset uint64) *page { return l.pages[offset/pageSize-l.first/pageSize] }

// publish stores msgs, for readers all at once.
func (l *log) publish(msgs []*backend.Message, now moment, fail func(i int, err error)) {
	for i, m := range msgs {
		if err := l.accept(m, now); err != nil {
			fail(i, err)
		}
	}
	l.next.Store(l.end)
}

// accept stores m, unless it was stored before or there is no room.
func (l *log) accept(m *backend.Message, now moment) error {
	m.Position, m.Duplicate = "", false
	if m.Once {
		if position, ok := l.marks.find(m.ID, now); ok {
			m.Position, m.Duplicate = position, true
			return nil
		}
	}
	if err := l.ledger.enter(m.Size(), l.readers); err != nil {
		return err
	}
	m.Position = l.store(m, now)
	if m.Once {
		l.marks.add(m.ID, m.Position, now)
	}
	return nil
}

// store appends a copy of m and returns its position.
func (l *log) store(m *backend.Message, now moment) (position string) {
	offset := l.end
	if int(offset/pageSize-l.first/pageSize) == len(l.pages) {
		p := l.spare.take()
		p.start(offset, l.used)
		l.pages = append(l.pages, p)
	}
	p := l.page(offset)
	p.store(offset, m, now)
	if l.end++; l.end%pageSize == 0 {
		l.used = p.place()
	}
	return p.position(offset)
}

// resolve returns the offset at which start begins.
func (l *log) resolve(start backend.Start) (uint64, error) {
	next := l.next.Load()
	if after, ok := start.After(); ok {
		offset, err := parsePosition(after)
		if err == nil && offset >= next {
			err = fmt.Errorf("%w: position %s is beyond the end", backend.ErrRefused, after)
		}
		return max(offset+1, l.first), err
	}
	switch start {
	case backend.StartEarliest:
		return l.first, nil
	case backend.StartLatest:
		return next, nil
	}
	return 0, fmt.Errorf("%w: unknown start %q", backend.ErrRefused, start)
}

// stored returns when the message at offset was.
func (l *log) stored(offset uint64) moment { return l.page(offset).at(offset).stored }

// read makes message(0), message(1) and so on those at offset and after it, n at
// most and at least one, and returns how many. But for large payloads, which are
// the log's own, they are copies. The caller has the topic's lock and not the log's:
// that is held for a moment, and what is published meanwhile is beyond what is read.
func (l *log) read(offset uint64, n int, message func(i int) *backend.Message) int {
	l.mu.Lock()
	p := l.page(offset)
	written := p.bodies
	l.mu.Unlock()
	return p.read(&written, offset, n, message)
}

// rest lets go of the memory of what was forgotten, if that is much or there is
// nothing else.
func (l *log) rest() {
	if len(l.pages) == 0 {
		return
	}
	p := l.pages[0]
	if l.len() == 0 || !(place{}).near(p.begin(l.first)) {
		p.shrink(l.first, min(l.next.Load(), l.first-l.first%pageSize+pageSize))
	}
	if l.len() == 0 {
		l.used = place{}
	}
}

// trim forgets what is below offset.
func (l *log) trim(offset uint64) {
	messages, bytes := int64(offset-l.first), int64(0)
	for l.first < offset {
		bytes += int64(l.page(l.first).forget(l.first))
		if l.first++; l.first%pageSize == 0 {
			if l.pages[0].end() {
				l.spare.keep(l.pages[0])
			}
			l.pages[0] = nil
			l.pages = l.pages[1:]
		}
	}
	l.ledger.leave(messages, bytes)
}
