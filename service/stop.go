package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus"
)

// Stop drains one group, as [eventbus.Subscription.Drain] does, and removes it from the service.
// Its counts stay in the Outcome. In the broker the group remains, so you can register its name
// again, or leave it to other processes. Called in a handler of the group, Stop returns
// eventbus.ErrInHandler. If the drain left events behind, the error is an *eventbus.DrainError.
func (s *Service) Stop(ctx context.Context, name string) error {
	s.mu.Lock()
	m := s.members[name]
	s.mu.Unlock()
	if m == nil {
		return s.unknown(name)
	}
	return s.stop(ctx, m)
}

// StopAll stops all groups concurrently. The bus stays open, and you can register groups again.
func (s *Service) StopAll(ctx context.Context) error {
	return s.each(func(m *member) error { return s.stop(ctx, m) })
}

// each calls do for all groups concurrently, and joins the errors in the order of their names.
func (s *Service) each(do func(m *member) error) error {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.members))
	members := make([]*member, len(names))
	for i, name := range names {
		members[i] = s.members[name]
	}
	s.mu.Unlock()
	errs := make([]error, len(members))
	var calls sync.WaitGroup
	for i, m := range members {
		calls.Go(func() { errs[i] = do(m) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// stop drains and removes m. It waits for another call that is starting or declaring m. As with
// [eventbus.Subscription.Drain], the first ctx of any call to end cancels the handlers.
func (s *Service) stop(ctx context.Context, m *member) error {
	for {
		s.mu.Lock()
		opening := m.opening
		switch {
		case s.members[m.name] != m:
			s.mu.Unlock()
			return nil
		case opening != nil:
		case m.sub == nil:
			delete(s.members, m.name)
			s.mu.Unlock()
			return nil
		default:
			m.stopping++
			s.mu.Unlock()
			return s.drain(ctx, m)
		}
		s.mu.Unlock()
		select {
		case <-opening:
		case <-ctx.Done():
			return m.wrap(context.Cause(ctx))
		}
	}
}

// drain drains m, which stop has marked.
func (s *Service) drain(ctx context.Context, m *member) error {
	err := m.sub.Drain(ctx)
	if errors.Is(err, eventbus.ErrInHandler) {
		s.mu.Lock()
		m.stopping--
		s.mu.Unlock()
	} else {
		s.count(m, err)
	}
	if err != nil {
		return m.wrap(err)
	}
	return nil
}
