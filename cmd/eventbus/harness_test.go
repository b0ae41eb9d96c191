package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// TestMain runs the test binary as the command, for tests with processes.
func TestMain(m *testing.M) {
	if os.Getenv("EVENTBUS_TEST_IS_COMMAND") != "" {
		main()
	}
	os.Unsetenv(urlVariable)
	if rawURL := os.Getenv(memberVariable); rawURL != "" {
		if err := groupMember(rawURL); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if at := flag.Lookup("test.parallel"); at.Value.String() == at.DefValue {
		_ = flag.Set("test.parallel", "16") // the tests that are parallel wait for leases and processes rather than compute
	}
	os.Exit(m.Run())
}

// A sharedDriver opens "test:" as one shared backend, like a broker.
type sharedDriver struct{ b backend.Backend }

func (d sharedDriver) Schemes() []string { return []string{"test"} }

func (d sharedDriver) Open(context.Context, *url.URL) (backend.Backend, error) {
	return sharedBackend{d.b}, nil
}

// A sharedBackend ignores Close, because others use it.
type sharedBackend struct{ backend.Backend }

func (b sharedBackend) Unwrap() backend.Backend { return b.Backend }

func (b sharedBackend) Close() error { return nil }

// A bench is a backend on which a test runs commands.
type bench struct {
	t   *testing.T
	b   backend.Backend
	mem *inmemory.Backend // nil on a broker
}

func newBench(t *testing.T) *bench {
	mem := inmemory.New(inmemory.Options{})
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	return &bench{t: t, b: mem, mem: mem}
}

// A result is the exit code and output of a command.
type result struct {
	code           int
	stdout, stderr string
}

// account returns the lines of stderr that are not of the log.
func (r result) account() string {
	var account strings.Builder
	for l := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(l, "time=") {
			account.WriteString(l)
		}
	}
	return account.String()
}

// lines returns the lines of stdout.
func (r result) lines() []string {
	if r.stdout == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
}

// events decodes the lines of stdout.
func (r result) events(t *testing.T) (events []event) {
	t.Helper()
	for _, l := range r.lines() {
		var e event
		require.NoError(t, json.Unmarshal([]byte(l), &e), l)
		events = append(events, e)
	}
	return events
}

// An event holds the fields of a line that tests compare.
type event struct {
	ID, Type, Key, Topic, Group, Position string
	Attempt                               int
	Data                                  json.RawMessage
}

// run runs a command to its end.
func (b *bench) run(stdin string, args ...string) result {
	b.t.Helper()
	return b.runContext(b.t.Context(), stdin, args...)
}

func (b *bench) runContext(ctx context.Context, stdin string, args ...string) result {
	b.t.Helper()
	var out, errs safeBuffer
	code := run(ctx, []backend.Driver{sharedDriver{b.b}}, append(args, "--url", "test:"), strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// ends runs a command whose file names the backend.
func (b *bench) ends(args ...string) result {
	b.t.Helper()
	var out, errs safeBuffer
	code := run(b.t.Context(), []backend.Driver{sharedDriver{b.b}}, args, strings.NewReader(""), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// ok runs a command that must succeed.
func (b *bench) ok(stdin string, args ...string) result {
	b.t.Helper()
	r := b.run(stdin, args...)
	require.Zero(b.t, r.code, r.stderr)
	return r
}

// failed runs a sub that ends with exit code 1, because n events failed for good.
func (b *bench) failed(n int, args ...string) result {
	b.t.Helper()
	r := b.run("", args...)
	require.Equal(b.t, 1, r.code, r.stderr)
	require.Contains(b.t, r.stderr, "eventbus: sub: "+plural.Of(n, "event")+" failed for good\n")
	return r
}

// A running command can be interrupted.
type running struct {
	out, errs *safeBuffer
	cancel    context.CancelCauseFunc
	ended     chan int
}

// start starts a command.
func (b *bench) start(args ...string) *running {
	ctx, cancel := context.WithCancelCause(b.t.Context())
	r := &running{out: &safeBuffer{}, errs: &safeBuffer{}, cancel: cancel, ended: make(chan int, 1)}
	go func() {
		r.ended <- run(ctx, []backend.Driver{sharedDriver{b.b}}, append(args, "--url", "test:"), strings.NewReader(""), r.out, r.errs)
	}()
	return r
}

// end interrupts the command and returns its result.
func (r *running) end() result {
	r.cancel(errors.New("interrupt signal received"))
	return r.wait()
}

func (r *running) wait() result { return result{<-r.ended, r.out.String(), r.errs.String()} }

// groups runs the command groups.
func (b *bench) groups(topics ...string) (rows []groupstats.GroupRow) {
	b.t.Helper()
	r := b.ok("", append([]string{"groups", "--json"}, topics...)...)
	require.NoError(b.t, json.Unmarshal([]byte(r.stdout), &rows), r.stdout)
	return rows
}

// read returns a topic's messages.
func (b *bench) read(topic string) []backend.Message {
	b.t.Helper()
	r, ok := backend.As[backend.Reader](b.b)
	require.True(b.t, ok)
	ms, err := r.Read(b.t.Context(), topic, "", 100)
	require.NoError(b.t, err)
	return ms
}

// settled waits until the topic's groups have settled all events.
func (b *bench) settled(topic string) {
	b.t.Helper()
	await(b.t, "all is settled", func() bool {
		g := b.groups(topic)[0]
		return g.Lag == 0 && g.InFlight == 0 && g.Delayed == 0
	})
}

// await waits for a condition that soon holds.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for range 2000 {
		if f() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// A safeBuffer allows reading during a write.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// numbered returns n lines of events e-0, e-1 and so on, of seven keys.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":"e-%d","type":"t","key":"k-%d","data":{"n":%d}}`+"\n", i, i%7, i)
	}
	return b.String()
}

// decode reads stdout as JSON.
func (r result) decode(t *testing.T, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.stdout), v), r.stdout)
}

// A broker is a real server of a test's own.
type broker interface {
	URL() string
	Kill()
	Run()
}

// A kind is a kind of broker that the command supports.
type kind struct {
	name   string
	driver backend.Driver
	start  func(t *testing.T) broker

	// forgets bounds how old the acknowledgements and deliveries are that a killed server
	// forgets.
	forgets time.Duration
}

var kinds = []kind{
	{"redis", redisstream.Driver{}, func(t *testing.T) broker { return redistest.Start(t) }, 0},
	{"nats", nats.Driver{}, func(t *testing.T) broker { return natstest.Start(t) }, 2 * time.Second},
}

// clusters are kinds of brokers with several servers, for tests that need only their URL.
var clusters = []kind{
	{"redis-cluster", redisstream.Driver{}, func(t *testing.T) broker {
		return several{url: "redis+cluster://" + redistest.StartCluster(t).Nodes()[0].Addr()}
	}, 0},
	{"nats-cluster", nats.Driver{}, func(t *testing.T) broker {
		return several{url: natstest.StartCluster(t).Servers()[0].URL() + "?replicas=3"}
	}, 0},
}

// several is a cluster with this URL.
type several struct {
	broker // nil: no server of it is killed
	url    string
}

func (s several) URL() string { return s.url }

// A brokerBench is a broker on which a test runs commands with the drivers of the program, in this process or in others.
type brokerBench struct {
	broker
	t *testing.T
}

// run runs a command in this process.
func (s brokerBench) run(stdin string, args ...string) result {
	var out, errs safeBuffer
	code := run(s.t.Context(), drivers(), append(args, "--url", s.URL()), strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// process returns a command as a process of its own.
func (s brokerBench) process(args ...string) *exec.Cmd {
	cmd := process(s.t, args...)
	cmd.Env = append(cmd.Env, urlVariable+"="+s.URL())
	return cmd
}

// onBrokers runs a test on a server of each kind, on all of them at the same time.
func onBrokers(t *testing.T, test func(t *testing.T, s brokerBench)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, brokerBench{k.start(t), t})
		})
	}
}

// onEach runs a test on a bench in memory and on one for each kind of broker, one after another. It is for tests that
// compute, or that compare ages in seconds and need the machine for themselves.
func onEach(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Run("memory", func(t *testing.T) { test(t, newBench(t)) })
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			test(t, &bench{t: t, b: openBackend(t, k.driver, k.start(t).URL())})
		})
	}
}

// onEachAtOnce is onEach for tests that spend their time waiting. They run at the same time.
func onEachAtOnce(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Parallel()
	onThreeAtOnce(t, test)
}

// onThreeAtOnce runs the benches at the same time, but no other test.
func onThreeAtOnce(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Run("memory", func(t *testing.T) { t.Parallel(); test(t, newBench(t)) })
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, &bench{t: t, b: openBackend(t, k.driver, k.start(t).URL())})
		})
	}
}

// openBackend opens a backend and closes it with the test.
func openBackend(t *testing.T, d backend.Driver, rawURL string) backend.Backend {
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	b, err := d.Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// process returns the command as a separate process.
func process(t *testing.T, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), "EVENTBUS_TEST_IS_COMMAND=1")
	return cmd
}
