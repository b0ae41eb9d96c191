package inmemory

// An entry is a message that was handed out. It is in the queue until it is
// settled, and kept until all before it are.
type entry struct {
	offset  uint64
	due     moment
	attempt int    // hand-outs that count
	handout uint64 // the last one
	held    bool
	settled bool

	index      int    // in the queue's heap, or listed
	prev, next *entry // in the queue's list
}

const listed = -1

// before reports whether e goes before f in the queue.
func (e *entry) before(f *entry) bool {
	if e.due != f.due {
		return e.due < f.due
	}
	return e.offset < f.offset
}

// A receipt is the Token of a delivery: which message, and which hand-out of it.
type receipt struct {
	group   *group
	offset  uint64
	handout uint64 // in all of the group, so none is the same
}
