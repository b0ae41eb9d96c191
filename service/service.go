// Package service runs the groups of a program, from registration to an exit code.
//
//	func main() {
//		bus, err := eventbus.Open(ctx, url, eventbus.Options{Timeout: time.Minute}, redisstream.Driver{})
//		…
//		svc, err := service.New(bus, service.Options{Defaults: eventbus.SubscribeOptions{Concurrency: 8}})
//		…
//		err = svc.Register(ctx, "billing", service.Group{Topic: "orders", Handler: charge})
//		…
//		outcome := svc.Run(ctx, 25*time.Second) // until SIGTERM
//		log.Print(outcome)
//		os.Exit(outcome.ExitCode())
//	}
//
// # Settings
//
// A group inherits each setting that it leaves zero: its own value comes first, then the one in
// Options.Defaults, then the default of the bus. In this package, as in package eventbus, a Timeout
// of 0 means "not set", and a negative one means "none". In a file or a flag, a timeout of 0 is
// refused. [eventbus.Subscription.Options] returns the settings in effect for a group that has
// started.
//
// # Starting and stopping groups
//
// Register creates the topics and the group, so the group gets every event published from then on.
// Start starts the registered groups; a group registered later starts at once. Stop ends one group,
// after which you can register its name again with another handler.
//
// # Shutdown
//
// Run shuts down the service and the bus, and returns an [Outcome]: what happened in all groups
// since the start. Its counts are correct even if the drain timed out, and no run is counted twice.
package service

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// A Bus is the part of an [eventbus.Bus] that a Service uses.
type Bus interface {
	eventbus.Subscriber
	eventbus.ManualSubscriber
	eventbus.BatchSubscriber
	Declare(ctx context.Context, topic string, o eventbus.SubscribeOptions) error
	Shutdown(ctx context.Context) error
}

var _ Bus = (*eventbus.Bus)(nil)

// Options are the settings of a [Service]. A zero field means its default.
type Options struct {
	// Defaults are inherited by every group; see the package comment. New refuses fields that
	// belong to a single group: Group, Topics, Ack, Order, Start, MaxRedelivered, OnFailure,
	// LeaveTimeouts, DeadLetterExpired and DeadLetterOnReceive. The zero value of most of these has
	// a meaning, which a group could then no longer choose.
	Defaults eventbus.SubscribeOptions

	// Servers run during Run. They are shut down first, because requests in flight may publish. Run
	// ends early if one of them fails.
	Servers []eventbus.Server

	// Signals end Run. The default is SIGINT and SIGTERM; an empty but non-nil slice means none.
	Signals []os.Signal
}

// A Service runs groups on one bus. Its methods are safe for concurrent use. It has one goroutine
// per running group, which waits for the end of its subscription.
type Service struct {
	bus     Bus
	options Options
	over    chan struct{} // closed when a group has ended by itself
	end     func()        // closes over; only its first call has an effect

	mu      sync.Mutex
	members map[string]*member // by name
	started bool
	running bool    // Run was called
	closed  bool    // Run is draining, or has drained
	totals  Outcome // of groups that were drained
	errs    []error // for Outcome.Err
}

// New returns a service that runs its groups on b. If o is invalid, the error is an
// *eventbus.FieldError.
func New(b Bus, o Options) (*Service, error) {
	if b == nil {
		return nil, &eventbus.FieldError{Field: "bus", Reason: "is nil"}
	}
	if err := checkDefaults(o.Defaults); err != nil {
		return nil, err
	}
	for i, server := range o.Servers {
		if server == nil {
			return nil, &eventbus.FieldError{Field: fmt.Sprintf("service.Options.Servers[%d]", i), Reason: "is nil"}
		}
	}
	s := &Service{bus: b, options: o, over: make(chan struct{}), members: map[string]*member{}}
	s.end = sync.OnceFunc(func() { close(s.over) })
	return s, nil
}

// Register adds a group under a name, which must be valid as the name of a group. Before it
// returns, it creates the topics and the group, as [eventbus.Bus.Declare] does. After Start it also
// starts the group. ctx limits the call, and if the group starts at once, the contexts of handlers
// have its values.
//
// Register refuses a name that is taken, and, unless g.AllowDuplicate is set, a group that shares a
// topic and its group name with a registered one. Invalid settings are refused with the error of
// Subscribe. After an error the group is not registered.
func (s *Service) Register(ctx context.Context, name string, g Group) error {
	m, err := newMember(name, g, s.options.Defaults)
	if err != nil {
		return err
	}
	if err := s.reserve(m); err != nil {
		return err
	}
	if err = m.declare(ctx, s.bus); err == nil {
		err = s.declared(ctx, m)
	}
	if err != nil {
		s.forget(m)
		return m.wrap(err)
	}
	return nil
}

// reserve adds m. Start does not start it until it is declared.
func (s *Service) reserve(m *member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return m.wrap(eventbus.ErrClosed)
	case s.members[m.name] != nil:
		return &eventbus.FieldError{Field: "name", Reason: fmt.Sprintf("is %q, which is registered already; Stop ends that group and frees the name", m.name)}
	}
	for _, name := range slices.Sorted(maps.Keys(s.members)) {
		if topic := m.shares(s.members[name]); topic != "" && !m.AllowDuplicate {
			return &eventbus.FieldError{Field: "service.Group", Reason: fmt.Sprintf(
				"%s has the topic %s and the group %s, as %s has: the two would share the events; set AllowDuplicate if that is intended", m.name, topic, m.options.Group, name)}
		}
	}
	s.members[m.name] = m
	m.opening = make(chan struct{})
	return nil
}

// declared lets Start start m, or starts it if Start was already called. Until then no other call
// can start m, so forget can remove it permanently.
func (s *Service) declared(ctx context.Context, m *member) error {
	s.mu.Lock()
	closed, started := s.closed, s.started
	if !closed && !started {
		m.opened()
	}
	s.mu.Unlock()
	switch {
	case closed:
		return eventbus.ErrClosed
	case started:
		return s.subscribe(ctx, m)
	}
	return nil
}

// forget removes a member that Register could not declare or start.
func (s *Service) forget(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.opened()
	delete(s.members, m.name)
}

// Start starts all registered groups, and returns when they are running. If a group cannot start,
// it stays registered, and a later Start tries again; the others run. ctx limits the call, and the
// contexts of handlers have its values.
func (s *Service) Start(ctx context.Context) error {
	s.mu.Lock()
	s.started = true
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return eventbus.ErrClosed
	}
	return s.each(func(m *member) error {
		if err := s.start(ctx, m); err != nil {
			return m.wrap(err)
		}
		return nil
	})
}

// start starts m, unless it has already started or was removed. It waits for another call that is
// starting or declaring m.
func (s *Service) start(ctx context.Context, m *member) error {
	for {
		s.mu.Lock()
		switch {
		case s.closed:
			s.mu.Unlock()
			return eventbus.ErrClosed
		case m.sub != nil || s.members[m.name] != m:
			s.mu.Unlock()
			return nil
		case m.opening == nil:
			m.opening = make(chan struct{})
			s.mu.Unlock()
			err := s.subscribe(ctx, m)
			if err != nil {
				s.mu.Lock()
				m.opened()
				s.mu.Unlock()
			}
			return err
		}
		opening := m.opening
		s.mu.Unlock()
		select {
		case <-opening:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// subscribe subscribes m. After an error the caller must call m.opened.
func (s *Service) subscribe(ctx context.Context, m *member) error {
	sub, err := m.subscribe(ctx, s.bus)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.sub = sub
	m.opened()
	go func() {
		<-sub.Done()
		s.mu.Lock()
		stopping := m.stopping > 0
		s.mu.Unlock()
		if !stopping {
			s.end()
		}
	}()
	return nil
}

// Names returns the names of the registered groups, sorted.
func (s *Service) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.members))
}

// Subscription returns the subscription of the group called name, or nil if the group has not
// started or is not registered. Its Options are the settings in effect. Don't call its Drain, which
// would end Run; use [Service.Stop].
func (s *Service) Subscription(name string) *eventbus.Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[name]; m != nil {
		return m.sub
	}
	return nil
}

// unknown returns the error for a name that is not registered.
func (s *Service) unknown(name string) error {
	return &eventbus.FieldError{
		Field: "name", Reason: fmt.Sprintf("is %q, which is not registered%s", name, nearest.Hint("%q", name, s.Names())),
	}
}
