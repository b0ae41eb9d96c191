package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/faultbroker"
	"github.com/seed41896749/eventbus/conformance/internal/faults"
	"github.com/seed41896749/eventbus/conformance/internal/laws"
	"github.com/seed41896749/eventbus/conformance/internal/report"
	"github.com/seed41896749/eventbus/inmemory"
)

// fake returns a suite on a fake clock, whose broker can be harmed. broker may wrap the broker
// in a fault, and driver each driver.
func fake(broker, driver func(faultbroker.Store) faultbroker.Store) Suite {
	return harmed(inmemory.Options{MaxBytes: 16 << 20}, broker, driver)
}

// harmed is like fake, but o has the options of the backends in memory.
func harmed(o inmemory.Options, broker, driver func(faultbroker.Store) faultbroker.Store) Suite {
	var clients sync.Map // the faultbroker.Client of each driver
	client := func(t *testing.T, b *faultbroker.Broker) backend.Backend {
		c := b.Client()
		d := driver(c)
		clients.Store(d, c)
		t.Cleanup(func() { d.Close(); clients.Delete(d) })
		return d
	}
	of := func(b backend.Backend) *faultbroker.Client {
		c, _ := clients.Load(b)
		return c.(*faultbroker.Client)
	}
	open := func(t *testing.T, o inmemory.Options) backend.Backend {
		b := inmemory.New(o)
		t.Cleanup(func() { b.Close() })
		return client(t, faultbroker.New(broker(b)))
	}
	return Suite{
		Name:   "wrapped",
		Lease:  30 * time.Second,
		Around: synctest.Test,
		Engine: true,
		New:    func(t *testing.T) backend.Backend { return open(t, o) },
		NewBounded: func(t *testing.T, messages int) backend.Backend {
			return open(t, inmemory.Options{MaxMessages: messages})
		},
		Peer: func(t *testing.T, b backend.Backend) backend.Backend { return client(t, of(b).Broker()) },
		Faults: Faults{
			Down:      func(_ *testing.T, b backend.Backend) func() { return of(b).Down() },
			Freeze:    func(_ *testing.T, b backend.Backend) func() { return of(b).Freeze() },
			Swallow:   func(_ *testing.T, b backend.Backend) func() { return of(b).Swallow() },
			Cut:       func(_ *testing.T, b backend.Backend) { of(b).Cut() },
			DropReply: func(_ *testing.T, b backend.Backend, kind Request) { of(b).DropReply(string(kind)) },
			Restart:   func(_ *testing.T, b backend.Backend) { of(b).Broker().Kill() },
			Kill:      func(_ *testing.T, b backend.Backend) { of(b).Broker().Kill() },
			Lose: func(_ *testing.T, b backend.Backend, topic, position string) {
				of(b).Broker().Lose(topic, position)
			},
			Commands: func(_ *testing.T, b backend.Backend) int64 { return of(b).Requests() },
		},
	}
}

// good is a wrapper for the function fake. It changes nothing.
func good(s faultbroker.Store) faultbroker.Store { return s }

// TestNoFaultKeepsEveryLaw checks that a wrapped backend without a fault keeps every law.
// Then, if a law fails with a fault, the fault is the cause and not the wrapper.
func TestNoFaultKeepsEveryLaw(t *testing.T) {
	Run(t, fake(faults.None.Wrap, faults.None.Wrap))
}

// A bare backend has the six required methods of a backend and a source, and no optional
// verb.
type bare struct{ backend.Backend }

func (b bare) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := b.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return bareSource{src}, nil
}

type bareSource struct{ backend.Source }

// TestBackendNeedsNoOptionalVerb checks that a backend passes without optional verbs. Laws
// about verbs are not claimed, and the report has one line for each of them.
func TestBackendNeedsNoOptionalVerb(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv(report.OutFile, out)
	t.Run("suite", func(t *testing.T) {
		s := fake(good, good)
		whole := s.New
		s.New = func(t *testing.T) backend.Backend { return bare{whole(t)} }
		s.NewBounded, s.Peer, s.Faults = nil, nil, Faults{}
		Run(t, s)
	})
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string]report.Result{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct {
			Backend, ID, Name, Promise string
			Result                     report.Result
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		name := line.ID + "-" + line.Name
		if got[name] != "" || line.Backend != "wrapped" || line.Promise == "" {
			t.Errorf("unexpected line %s", lines.Text())
		}
		got[name] = line.Result
	}
	for _, l := range laws.All() {
		want := report.Pass
		if len(l.Needs) > 0 {
			want = report.NotClaimed
		}
		if got[l.Subtest()] != want {
			t.Errorf("law %s: got %q, want %q", l.Subtest(), got[l.Subtest()], want)
		}
	}
}

// TestOnlyRunsTheLawsItNames checks that only the laws in Only run, and that the report
// says so. Grace must not make a law fail.
func TestOnlyRunsTheLawsItNames(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv(report.OutFile, out)
	s := fake(good, good)
	s.Only = []string{"B.D01", "B.O02-key-order-retry", "T05"}
	s.Grace = map[string]time.Duration{"B.D01": time.Minute, "B.O02": time.Minute}
	t.Run("suite", func(t *testing.T) { Run(t, s) })
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != len(s.Only) {
		t.Fatalf("got %d results, want one for each of %v", len(lines), s.Only)
	}
	for _, line := range lines {
		if !strings.Contains(line, `"some":true`) || !strings.Contains(line, `"result":"pass"`) {
			t.Errorf("got %s, want a pass of some tests", line)
		}
		if late := strings.Contains(line, `"why":"up to 1m0s later than promised still counts as in time"`); late == strings.Contains(line, `"id":"T05"`) {
			t.Errorf("got %s, want its grace, if it had any", line)
		}
	}
}
