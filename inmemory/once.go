package inmemory

import "time"

// marks remember which IDs were published with Once, each for one window.
type marks struct {
	window time.Duration
	byID   map[string]mark
	oldest []mark // every mark made, in that order, until it is forgotten
}

type mark struct {
	id       string
	position string
	made     moment
}

func newMarks(window time.Duration) marks {
	return marks{window: window, byID: map[string]mark{}}
}

func (s *marks) expired(m mark, now moment) bool { return now-m.made >= s.window }

// find returns where a message with this ID was stored within the window.
func (s *marks) find(id string, now moment) (position string, ok bool) {
	m, ok := s.byID[id]
	return m.position, ok && !s.expired(m, now)
}

// add remembers an ID. It forgets two for each that it adds, so that marks do
// not pile up even if nobody calls Maintain.
func (s *marks) add(id, position string, now moment) {
	s.forget(2, now)
	m := mark{id, position, now}
	s.byID[id] = m
	s.oldest = append(s.oldest, m)
}

// forget drops at most max expired marks and says when to call it next.
func (s *marks) forget(max int, now moment) (next time.Duration) {
	for range max {
		if len(s.oldest) == 0 {
			return s.window
		}
		m := s.oldest[0]
		if !s.expired(m, now) {
			return m.made + s.window - now
		}
		if s.byID[m.id] == m { // and not made anew since
			delete(s.byID, m.id)
		}
		s.oldest[0] = mark{}
		s.oldest = s.oldest[1:]
	}
	return time.Millisecond // there may be more
}
