package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus"
)

// Stop drains one group, as [eventbus.Subscription.Drain] does, and removes it. Its counts stay in
// the Outcome. The group itself stays in the broker, so its name may be registered again, or another
// process goes on. In a handler of the group Stop returns eventbus.ErrInHandler. If the drain has
// left events, the error is an *eventbus.DrainError.
func (s *Service) Stop(ctx context.Context, name string) error {
	s.mu.Lock()
	m := s.members[name]
	s.mu.Unlock()
	if m == nil {
		return s.unknown(name)
	}
	return s.stop(ctx, m)
}

// StopAll stops all groups at the same time. The bus stays open, and groups may be registered
// again.
func (s *Service) StopAll(ctx context.Context) error {
	return s.each(func(m *member) error { return s.stop(ctx, m) })
}

// each calls do for each group, at the same time, and joins the errors in the order of the names.
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

// stop drains and removes m. It waits for another call that starts or declares m. As with
// [eventbus.Subscription.Drain], the first ctx of any call that ends cancels the handlers.
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
