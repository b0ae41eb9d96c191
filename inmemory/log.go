package inmemory

import "github.com/seed41896749/eventbus/backend"

// A log keeps messages by offset, in pages.
type log struct {
	first uint64 // the oldest kept
	next  uint64 // the next to be stored
	pages []*page
	used  place // by the last page that is full: what the next is expected to need
	spare *spare[page]
}

// The first offset is 1, so that every position is greater than zero's.
func newLog(s *spare[page]) log { return log{first: 1, next: 1, spare: s} }

func (l *log) len() int64 { return int64(l.next - l.first) }

// page returns the page of an offset from first to next-1.
func (l *log) page(offset uint64) *page { return l.pages[offset/pageSize-l.first/pageSize] }

// store appends a copy of m and returns its position.
func (l *log) store(m *backend.Message, now moment) (position string) {
	if int(l.next/pageSize-l.first/pageSize) == len(l.pages) {
		p := l.spare.take()
		p.start(l.next, l.used)
		l.pages = append(l.pages, p)
	}
	p := l.page(l.next)
	p.store(l.next, m, now)
	if l.next++; l.next%pageSize == 0 {
		l.used = p.place()
	}
	return p.position(l.next - 1)
}

// stored returns when the message at offset was.
func (l *log) stored(offset uint64) moment { return l.page(offset).at(offset).stored }

// read makes message(0), message(1) and so on those at offset and after it, n at
// most and at least one, and returns how many. But for large payloads, which are
// the log's own, they are copies.
func (l *log) read(offset uint64, n int, message func(i int) *backend.Message) int {
	return l.page(offset).read(offset, n, message)
}

// rest lets go of the memory of what was forgotten, if that is much or there is
// nothing else.
func (l *log) rest() {
	if len(l.pages) == 0 {
		return
	}
	p := l.pages[0]
	if l.len() == 0 || !(place{}).near(p.begin(l.first)) {
		p.shrink(l.first, min(l.next, l.first-l.first%pageSize+pageSize))
	}
	if l.len() == 0 {
		l.used = place{}
	}
}

// trim forgets what is below offset and returns how much that was.
func (l *log) trim(offset uint64) (messages, bytes int64) {
	for ; l.first < offset; messages++ {
		bytes += int64(l.page(l.first).forget(l.first))
		if l.first++; l.first%pageSize == 0 {
			if l.pages[0].end() {
				l.spare.keep(l.pages[0])
			}
			l.pages[0] = nil
			l.pages = l.pages[1:]
		}
	}
	return messages, bytes
}
