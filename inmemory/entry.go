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
	isDue   bool // in the queue: among those that are due

	index      int    // in a heap of the queue, or inList
	prev, next *entry // in the queue's list
}

const inList = -1

// before reports whether e goes before f. Both wait, or both are due.
func (e *entry) before(f *entry) bool {
	if e.isDue {
		return e.offset < f.offset
	}
	return e.due < f.due
}

// A receipt is the Token of a delivery: which message, and which hand-out of it.
type receipt struct {
	group   *group
	offset  uint64
	handout uint64 // in all of the group, so none is the same
}
