// Command swap is a small service whose backend is one line of its YAML file. It places
// orders, bills them with an unreliable bank, and checks the outcome of every order.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/config"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

func main() {
	file := flag.String("config", "examples/swap/eventbus.yaml", "configuration `file`")
	orders := flag.Int("orders", 100, "how many orders are placed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := run(ctx, *file, *orders, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run places orders and returns when each is billed or lost.
func run(ctx context.Context, file string, n int, out io.Writer) error {
	bus, cfg, err := config.Open(ctx, file, func(o *eventbus.Options) {
		quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
		o.Observer = observer.Slog(quiet) // the file cannot contain an observer, so code adds it
	}, inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := newShop(n)
	for name, handler := range map[string]eventbus.Handler{"billing": order.Handler(s.bill), "lost": order.Handler(s.lose)} {
		if _, err := cfg.Subscribe(ctx, bus, name, handler); err != nil {
			stop()
			return errors.Join(err, bus.Run(ctx))
		}
	}
	if unused := cfg.Unused(); len(unused) > 0 {
		slog.Warn("nobody handles these subscriptions", "file", file, "names", unused)
	}
	opened := make(chan error, 1)
	go func() {
		opened <- s.open(ctx, bus)
		stop() // every order is billed or lost, so Run drains the bus
	}()
	ended := bus.Run(ctx)
	stop()
	if err := errors.Join(<-opened, ended); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, s.account())
	return err
}
