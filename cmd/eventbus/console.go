package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/lifecycle"
)

const consoleHelp = `Serve the console: pages for a browser that show how the topics and groups are doing,
the events of a topic, and the dead letters by class. The pages change nothing unless
you give --allow-write: then visitors can redrive, edit and discard dead letters, and
pause, resume, reset and delete groups. Each change is logged on standard error.

It listens on this machine only, unless you name another address with --listen. There
is no password, so put a proxy with a sign-in in front of any other address, and give
the proxy's name with --host.`

// A consoleServer is the command "eventbus serve", with its flags.
type consoleServer struct {
	connection

	listen string
	hosts  []string
	hide   bool
	write  bool
	traces string
}

func newServe(drivers []backend.Driver) *cobra.Command {
	s := &consoleServer{connection: connection{drivers: drivers}}
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve the console for browsers",
		Long:    consoleHelp,
		Example: "  eventbus serve\n  eventbus serve --allow-write\n  eventbus serve --listen 10.0.0.5:8080 --host bus.example.com",
		Args:    topicArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.run(cmd); err != nil {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		},
	}
	s.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:8080", "`address` to listen on")
	f.StringSliceVar(&s.hosts, "host", nil, "answer only requests for this host `name`, and for this machine's own names if it listens locally")
	f.BoolVar(&s.write, "allow-write", false, "let every visitor change groups and dead letters")
	f.BoolVar(&s.hide, "hide-payloads", false, "show no payloads, and no headers but those that say why an event is a dead letter")
	f.StringVar(&s.traces, "trace-url", "", "link to the trace of an event at this `URL`, with {trace_id} in place of the id (default: no link)")
	return cmd
}

func (s *consoleServer) run(cmd *cobra.Command) error {
	if err := filled(cmd, "listen", "host", "trace-url"); err != nil {
		return err
	}
	if f, ok := errors.AsType[*eventbus.FieldError](console.Options{TraceURL: s.traces}.Check()); ok {
		return errors.New("--trace-url " + f.Reason)
	}
	ctx := cmd.Context()
	bus, err := s.open(ctx, eventbus.Options{Service: "eventbus", Observer: logProblems(cmd.ErrOrStderr())})
	if err != nil {
		return err
	}
	defer s.close(ctx, bus)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	o := console.Options{Hosts: s.hosts, TraceURL: s.traces}
	local := isLoopback(l.Addr())
	if local {
		o.Hosts = append([]string{"localhost", "127.0.0.1", "::1", hostOf(s.listen)}, o.Hosts...)
	}
	if s.hide {
		o.Redact = hidePayload
	}
	if s.write {
		o.Allow = func(*http.Request, console.Action) error { return nil }
		o.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	}
	announce(cmd.ErrOrStderr(), l.Addr(), local, s.write)
	return serveUntil(ctx, l, console.Handler(bus.Backend(), o))
}

// announce prints the address of the console, who can reach it, and who can change something there.
func announce(w io.Writer, at net.Addr, local, write bool) {
	text := "for everybody who can reach this address: there is no sign-in"
	if local {
		text = "for this machine only"
	}
	fmt.Fprintf(w, "console at http://%s/, %s\n", at, text)
	switch {
	case write && local:
		fmt.Fprintln(w, "Every user of this machine can change groups and discard dead letters here.")
	case write:
		fmt.Fprintln(w, "Everybody who can reach this address can delete groups and discard dead letters.")
	}
}

// serveUntil serves until ctx ends. Requests that are being answered then have one more second.
func serveUntil(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = server.Shutdown(end) // after a second, Close ends the rest
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// hostOf returns the host of an address.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address) // cannot fail: the address was listened on
	return host
}

// hidePayload removes the payload of an event and the headers that may contain data of the program. Lifecycle records
// contain no payload of an event, so they stay.
func hidePayload(topic string, e *eventbus.Event) {
	if e.Type != lifecycle.Type || !strings.HasSuffix(topic, lifecycle.Topic("")) {
		e.Payload = []byte("(hidden)")
	}
	why := e.Headers[:0]
	for _, h := range e.Headers {
		if strings.HasPrefix(h.Name, "eventbus-dead-") {
			why = append(why, h)
		}
	}
	e.Headers = why
}
