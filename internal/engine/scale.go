package engine

import "fmt"

// Handlers returns how many handlers may run at the same time now, and how many run.
func (s *Subscription) Handlers() (now, running int) {
	s.book.mu.Lock() // without effects
	defer s.book.mu.Unlock()
	return s.book.Concurrency, s.book.Stats().Running
}

// Resize changes how many handlers may run at the same time, between Concurrency and
// MaxConcurrency. It grows at once. To shrink, it ends idle workers, and each other worker that is
// too many after its present run. Resize returns false, and changes nothing, if n is out of these bounds.
func (s *Subscription) Resize(n int) bool {
	return s.resize(func(int, int) (int, bool) { return n, true })
}

// Grow allows one more handler. It returns false at MaxConcurrency.
func (s *Subscription) Grow() bool {
	return s.resize(func(now, _ int) (int, bool) { return now + 1, true })
}

// Shrink ends one idle worker. It returns false at Concurrency, or if as many handlers run as may.
func (s *Subscription) Shrink() bool {
	return s.resize(func(now, running int) (int, bool) { return now - 1, running < now })
}

// resize changes the number of handlers to the result of to, which gets the present number and
// how many run.
func (s *Subscription) resize(to func(now, running int) (int, bool)) bool {
	s.book.lock()
	n, ok := to(s.book.Concurrency, s.book.Stats().Running)
	if ok = ok && n >= s.Concurrency && n <= s.MaxConcurrency; ok && n != s.book.Concurrency {
		s.book.Resize(n)
	}
	s.book.unlock()
	s.tellBook()
	return ok
}

// Range returns the bounds of Resize as a text, such as "1 to 8".
func (c *Config) Range() string { return fmt.Sprintf("%d to %d", c.Concurrency, c.MaxConcurrency) }
