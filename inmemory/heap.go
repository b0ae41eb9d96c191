package inmemory

// A heap has an entry in front that no other goes before. It is written out because
// package container/heap costs an interface call for every comparison.
type heap []*entry

func (h heap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *heap) push(e *entry) {
	e.index = len(*h)
	*h = append(*h, e)
	h.up(e.index)
}

func (h *heap) remove(e *entry) {
	i, last := e.index, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last && !h.down(i) {
		h.up(i)
	}
}

func (h heap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

// down reports whether it moved anything.
func (h heap) down(start int) bool {
	i := start
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			break
		}
		h.swap(i, child)
		i = child
	}
	return i > start
}
