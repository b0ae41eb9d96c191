package inmemory

// A queue is a heap of entries: those due first in front, of those due at the
// same moment the lower offset. It is written out because package
// container/heap costs an interface call for every comparison.
type queue []*entry

func (q queue) less(i, j int) bool {
	if q[i].due != q[j].due {
		return q[i].due < q[j].due
	}
	return q[i].offset < q[j].offset
}

func (q queue) swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) push(e *entry) {
	e.index = len(*q)
	*q = append(*q, e)
	q.up(e.index)
}

// remove takes e out and marks it so.
func (q *queue) remove(e *entry) {
	i, last := e.index, len(*q)-1
	q.swap(i, last)
	(*q)[last] = nil
	*q = (*q)[:last]
	if i < last {
		q.fix(i)
	}
	e.index = -1
}

// move makes e due at another moment.
func (q queue) move(e *entry, due moment) {
	e.due = due
	q.fix(e.index)
}

func (q queue) fix(i int) {
	if !q.down(i) {
		q.up(i)
	}
}

func (q queue) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			return
		}
		q.swap(i, parent)
		i = parent
	}
}

// down reports whether it moved anything.
func (q queue) down(start int) bool {
	i := start
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			break
		}
		q.swap(i, child)
		i = child
	}
	return i > start
}
