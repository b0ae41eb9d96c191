package eventbus

import (
	"context"
	"errors"
	"sync"
)

// A Server answers requests of other programs, such as an [net/http.Server].
type Server interface {
	// ListenAndServe serves until Shutdown is called. It returns early only if it fails.
	ListenAndServe() error

	// Shutdown accepts no further request, and waits for the requests in flight, at most
	// until ctx ends.
	Shutdown(ctx context.Context) error
}

// Serve runs servers, and the bus as [Bus.Run] does, until ctx ends, a subscription fails for
// good, or a server fails. It then shuts the servers down, and after them the bus, because
// requests in flight may publish. Options.DrainTimeout bounds each of these two steps. Serve
// returns the first failure, and the errors of the shutdowns. The end of ctx is not an error.
//
// A service needs no other end: ctx comes from [os/signal.NotifyContext].
func (b *Bus) Serve(ctx context.Context, servers ...Server) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ran, served := make(chan error, 1), make(chan error, len(servers))
	go func() { ran <- b.Run(running) }()
	for _, s := range servers {
		go func() { served <- s.ListenAndServe() }()
	}
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
	case failed = <-ran: // a subscription has failed for good, or the bus was shut down
		ran <- nil
	}
	failed = errors.Join(failed, shutdownServers(ctx, b, servers))
	stop()
	return errors.Join(failed, <-ran)
}

// shutdownServers shuts servers down, all at the same time.
func shutdownServers(ctx context.Context, b *Bus, servers []Server) error {
	drain, cancel := drainContext(ctx, b)
	defer cancel()
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.Shutdown(drain) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// drainContext returns a context with the values of ctx that ends after DrainTimeout.
func drainContext(ctx context.Context, b *Bus) (context.Context, context.CancelFunc) {
	drain := context.WithoutCancel(ctx)
	if b.options.DrainTimeout > 0 {
		return context.WithTimeout(drain, b.options.DrainTimeout)
	}
	return drain, func() {}
}
