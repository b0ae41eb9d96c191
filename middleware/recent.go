package middleware

import "container/list"

// A recent is a map that keeps at most max values: the values that were put last. It has no
// lock.
type recent[V any] struct {
	max    int
	byKey  map[string]*list.Element // the element of newest that has the key
	newest list.List                // of kept values; the value that was put last is in front
}

// A kept is a value of a recent, with its key.
type kept[V any] struct {
	key   string
	value V
}

func newRecent[V any](most int) *recent[V] {
	return &recent[V]{max: most, byKey: map[string]*list.Element{}}
}

func (r *recent[V]) get(key string) (v V, ok bool) {
	el, ok := r.byKey[key]
	if !ok {
		return v, false
	}
	return el.Value.(kept[V]).value, true
}

// put stores v under key, and removes the oldest value if there are more than max.
func (r *recent[V]) put(key string, v V) {
	if el, ok := r.byKey[key]; ok {
		r.newest.Remove(el)
	}
	r.byKey[key] = r.newest.PushFront(kept[V]{key, v})
	if len(r.byKey) > r.max {
		delete(r.byKey, r.newest.Remove(r.newest.Back()).(kept[V]).key)
	}
}
