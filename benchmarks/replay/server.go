package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/benchmarks/internal/broker"
)

// A server is a broker of one kind on this machine, which ends with the measurement.
type server struct {
	url     string
	process *broker.Server // nil: the broker is in this process
	redis   *redis.Client  // nil: it is no Redis

	phases []slow // one for each phase of a run, of the best run
}

// A slow is the slowest command of Redis in a phase.
type slow struct {
	phase, command string
	took           time.Duration
}

// The phases that check knows.
const (
	publishes = "publishes"
	resets    = "resets the group"
	replays   = "replays"
)

// check returns an error if a command of the reset or the replay took longer than most, and longer than
// the XADD of a single event.
func (s *server) check(most time.Duration) error {
	for _, c := range s.phases {
		if c.phase == publishes {
			most = max(most, c.took)
		}
	}
	for _, c := range s.phases {
		if (c.phase == resets || c.phase == replays) && c.took > most {
			return fmt.Errorf("while the program %s, a command took %v, more than %v: %s", c.phase, c.took, most, c.command)
		}
	}
	return nil
}

func start(ctx context.Context, name string) (s *server, err error) {
	if name == "mem" {
		return &server{url: "mem:?max_messages=100000000&max_bytes=16GiB"}, nil
	}
	var logged []string
	if name == "redis" { // it logs each command of more than 100 µs
		logged = []string{"--slowlog-log-slower-than", "100", "--slowlog-max-len", "1000000"}
	}
	process, err := broker.Start(ctx, name, logged...)
	if err != nil {
		return nil, err
	}
	s = &server{url: process.URL, process: process}
	switch name {
	case "redis":
		s.redis = redis.NewClient(&redis.Options{Addr: process.Addr, Protocol: 2, DisableIdentity: true})
	case "nats":
		s.url += "?max_bytes=16GiB" // a million events need more than the 256 MiB that the bus allows by default
	}
	return s, nil
}

// begin begins a phase of the program: the server forgets the commands of before.
func (s *server) begin(ctx context.Context) {
	if s.redis != nil {
		_ = s.redis.Do(ctx, "slowlog", "reset").Err() // end reports a server that does not answer
	}
}

// end ends a phase and begins the next one. It records the slowest command, unless the slowest command of
// an earlier run took less. It adds its error to failed.
func (s *server) end(ctx context.Context, phase string, failed *error) {
	if s.redis == nil {
		return
	}
	entries, err := s.redis.SlowLogGet(ctx, -1).Result()
	*failed = errors.Join(*failed, err)
	found := slow{phase: phase, command: "none of more than 100 µs"}
	for _, e := range entries {
		if e.Duration > found.took && len(e.Args) > 0 && e.Args[0] != "slowlog" {
			found.took, found.command = e.Duration, title(e.Args)
		}
	}
	switch i := slices.IndexFunc(s.phases, func(c slow) bool { return c.phase == phase }); {
	case i < 0:
		s.phases = append(s.phases, found)
	case found.took < s.phases[i].took:
		s.phases[i] = found
	}
	s.begin(ctx)
}

// title returns the first words of a command.
func title(args []string) (text string) {
	for _, a := range args[:min(len(args), 8)] {
		if len(a) > 24 {
			a = a[:24] + "…"
		}
		text += a + " "
	}
	return text
}

func (s *server) stop() (err error) {
	if s.redis != nil {
		err = s.redis.Close()
	}
	if s.process != nil {
		err = errors.Join(err, s.process.Stop())
	}
	return err
}
