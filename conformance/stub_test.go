package conformance_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/inmemory"
)

// A stub is an unfinished backend. Only its Receive and its Close do something, by
// functions in its fields.
type stub struct {
	receive func(context.Context) ([]backend.Delivery, error)
	close   func() error
	source  bool // Attach returns a Source, and not nil
}

func (s *stub) Publish(context.Context, []*backend.Message) error { return nil }
func (s *stub) Close() error                                      { return s.close() }

func (s *stub) Attach(context.Context, backend.Config) (backend.Source, error) {
	if !s.source {
		return nil, nil
	}
	return &stubSource{s}, nil
}

type stubSource struct{ stub *stub }

func (s *stubSource) Receive(ctx context.Context, _ int, maxBytes int64) ([]backend.Delivery, error) {
	return s.stub.receive(ctx)
}
func (s *stubSource) Ack(context.Context, []*backend.Delivery) error { return nil }
func (s *stubSource) Close() error                                   { return nil }

func waits(ctx context.Context) ([]backend.Delivery, error)  { <-ctx.Done(); return nil, ctx.Err() }
func returns(context.Context) ([]backend.Delivery, error)    { return nil, nil }
func ignoresCtx(context.Context) ([]backend.Delivery, error) { select {} }
func panicks(context.Context) ([]backend.Delivery, error)    { panic("not implemented") }
func fails(context.Context) ([]backend.Delivery, error)      { return nil, backend.ErrUnavailable }
func closes() error                                          { return nil }
func closesNever() error                                     { select {} }
func stubbed(s stub, parallel bool) conformance.Suite {
	return conformance.Suite{Name: "stub", Parallel: parallel, New: func(t *testing.T) backend.Backend {
		t.Cleanup(func() { s.close() })
		return &s
	}}
}

// stubs has the suites of all stubs, and texts that the output of each suite must contain.
var stubs = []struct {
	name  string
	suite func() conformance.Suite
	says  []string
}{
	{
		"lease-too-short", func() conformance.Suite { return slowCalls(time.Second) },
		[]string{"The lease is too short for this machine and broker: tests may fail because of it. Set Suite.Lease to 2.5s or more."},
	},
	{
		"lease-chosen", func() conformance.Suite { return slowCalls(0) },
		[]string{"2 passed", "the slowest call took 600ms, the lease is 2.5s: Publish("},
	},
	{
		"receive-waits", func() conformance.Suite { return stubbed(stub{waits, closes, true}, false) },
		[]string{"FAILED P12-publisher-order: messages from one publisher", "got 0 deliveries [] within 10s, want 201", "0 passed, 1 failed", "STOPPED: a basic test failed"},
	},
	{
		"receive-returns", func() conformance.Suite { return stubbed(stub{returns, closes, true}, false) },
		[]string{"FAILED P12-publisher-order", "got 0 deliveries [] within 10s, want 201", "STOPPED: a basic test failed"},
	},
	{
		"receive-returns-fake-clock", func() conformance.Suite {
			s := stubbed(stub{returns, closes, true}, false)
			s.Around = synctest.Test
			return s
		},
		[]string{"FAILED P12-publisher-order", "got 0 deliveries [] within 10s, want 201", "STOPPED: a basic test failed"},
	},
	{
		"receive-fails", func() conformance.Suite { return stubbed(stub{fails, closes, true}, false) },
		[]string{"FAILED P12-publisher-order", "Receive: got error unavailable, want none"},
	},
	{
		"receive-ignores-context", func() conformance.Suite { return stubbed(stub{ignoresCtx, closes, true}, true) },
		[]string{
			"FAILED P12-publisher-order", "FAILED S06-cancel-fast: Receive returns within a second after its context is done",
			"The test hangs: a call has not returned.", "It waits in contract.cancelFast wake.go:", "It waits in contract.publisherOrder publish.go:",
			"Receive(at most 10) of orders/g has not returned for", "; its context was done", "conformance_test.ignoresCtx stub_test.go:",
		},
	},
	{
		"receive-ignores-context-fake-clock", func() conformance.Suite {
			s := stubbed(stub{ignoresCtx, closes, true}, false)
			s.Around = synctest.Test
			return s
		},
		[]string{"FAILED P12-publisher-order", "The test hangs: a call has not returned."},
	},
	{
		"receive-panics", func() conformance.Suite { return stubbed(stub{panicks, closes, true}, false) },
		[]string{"FAILED P12-publisher-order", "The test panicked: not implemented", "conformance_test.panicks"},
	},
	{
		"close-hangs", func() conformance.Suite {
			s := stubbed(stub{waits, closesNever, true}, false)
			s.Only = []string{"S04"}
			return s
		},
		[]string{"FAILED S04-close-idempotent", "Close of the backend has not returned for", " (the oldest of 8 calls).", "STOPPED: S04-close-idempotent hangs: it has not ended 5s after its last step"},
	},
	{
		"no-source", func() conformance.Suite { return stubbed(stub{waits, closes, false}, false) },
		[]string{"FAILED P12-publisher-order", "Attach: got neither a Source nor an error"},
	},
	{
		"stats-hang", statsHang,
		[]string{"FAILED C37-stats-members", "It waits in contract.statsMembers stats.go:", "Stats of orders/g has not returned for 10m", "conformance_test.statsNever.Stats stub_test.go:"},
	},
	{
		"acks-hang", acksHang,
		[]string{"FAILED D10-ack-is-forever", "Ack(3 items, the first \"0000\") of orders/g has not returned for 10m", "conformance_test.(*acksNever).Ack stub_test.go:", "1 passed, 1 failed"},
	},
}

// statsHang is a suite of one law, which hangs in a verb.
func statsHang() conformance.Suite {
	return conformance.Suite{
		Name: "stub", Lease: 30 * time.Second, Around: synctest.Test, Only: []string{"C37"},
		New: func(t *testing.T) backend.Backend {
			b := inmemory.New(inmemory.Options{})
			t.Cleanup(func() { b.Close() })
			return statsNever{b}
		},
	}
}

type statsNever struct{ backend.Backend }

func (statsNever) Stats(context.Context, string, string) (backend.Stats, error) { select {} }

// acksHang is a suite of two laws on a fake clock. The second law hangs in Ack.
func acksHang() conformance.Suite {
	return conformance.Suite{
		Name: "stub", Lease: 30 * time.Second, Around: synctest.Test, Only: []string{"C02", "D10"},
		New: func(t *testing.T) backend.Backend {
			b := inmemory.New(inmemory.Options{})
			t.Cleanup(func() { b.Close() })
			return attaching{b}
		},
	}
}

type attaching struct{ backend.Backend }

func (a attaching) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := a.Backend.Attach(ctx, c)
	return &acksNever{src}, err
}

type acksNever struct{ backend.Source }

func (*acksNever) Ack(context.Context, []*backend.Delivery) error { select {} }

// late is a backend whose Publish takes a while.
type late struct{ backend.Backend }

func (l late) Publish(ctx context.Context, msgs []*backend.Message) error {
	time.Sleep(600 * time.Millisecond)
	return l.Backend.Publish(ctx, msgs)
}

// slowCalls is a suite of two laws, of which one is basic. Its backend has slow calls.
func slowCalls(lease time.Duration) conformance.Suite {
	return conformance.Suite{
		Name: "stub", Lease: lease, Around: synctest.Test, Only: []string{"C08", "C13"},
		New: func(t *testing.T) backend.Backend {
			b := inmemory.New(inmemory.Options{})
			t.Cleanup(func() { b.Close() })
			return late{b}
		},
	}
}

// stubEnv is the environment variable that tells a process of TestStubs the name of its
// stub.
const stubEnv = "EVENTBUS_STUB"

// TestStubs checks that a suite ends by itself if its backend does nothing, hangs or is
// slow. The output must be short and name the law, the call and the lease.
func TestStubs(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a process for each stub")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	type child struct {
		*exec.Cmd
		output bytes.Buffer
	}
	children := map[string]*child{}
	for _, s := range stubs { // all stubs run at the same time, because they mostly wait
		c := &child{Cmd: exec.CommandContext(t.Context(), self, "-test.run=^TestStubbed$", "-test.timeout=5m")}
		c.Env = append(os.Environ(), stubEnv+"="+s.name, "EVENTBUS_CONFORMANCE_OUT=")
		c.Stdout, c.Stderr = &c.output, &c.output
		require.NoError(t, c.Start())
		children[s.name] = c
	}
	for _, s := range stubs {
		t.Run(s.name, func(t *testing.T) {
			c := children[s.name]
			err := c.Wait()
			output := c.output.String()
			for _, want := range s.says {
				require.Contains(t, output, want)
			}
			for _, crash := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
				require.NotContains(t, output, crash)
			}
			if passed := strings.Contains(output, " 0 failed"); passed != (err == nil) {
				t.Errorf("got %v, and the account\n%s", err, output)
			}
			require.LessOrEqual(t, strings.Count(output, "\n"), 100, "lines of output:\n%s", output)
			require.Equal(t, 1, strings.Count(output, "conformance of stub: "), "accounts in\n%s", output)
		})
	}
}

// TestStubbed runs in the processes that TestStubs starts.
func TestStubbed(t *testing.T) {
	name := os.Getenv(stubEnv)
	if name == "" {
		t.Skip("see TestStubs")
	}
	for _, s := range stubs {
		if s.name == name {
			conformance.Run(t, s.suite())
		}
	}
}
