//go:build unix

package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/testing/testproc"
	"github.com/seed41896749/eventbus/outbox"
	"github.com/seed41896749/eventbus/outbox/internal/sqltest"
	"github.com/seed41896749/eventbus/redisstream"
)

// asRelay is the environment variable that makes the test binary a relay process.
const asRelay = "OUTBOX_TEST_RELAY"

// A job is the work of a relay process.
type job struct {
	Dialect, Driver, DSN, Bus string
	Lease                     time.Duration
}

// relayProcess is the main function of a relay process.
func relayProcess() int {
	var j job
	err := json.Unmarshal([]byte(os.Getenv(asRelay)), &j)
	if err == nil {
		err = j.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		return 1
	}
	return 0
}

func (j job) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := sql.Open(j.Driver, j.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	bus, err := eventbus.Open(ctx, j.Bus, eventbus.Options{}, redisstream.Driver{})
	if err != nil {
		return err
	}
	defer bus.Shutdown(context.WithoutCancel(ctx))
	ob, err := outbox.New(db, outbox.Dialect(j.Dialect), outbox.Options{
		Lease: j.Lease, Poll: 10 * time.Millisecond, OnActive: func(bool) {},
		OnFailure: func(f outbox.Failure) { fmt.Fprintln(os.Stderr, "relay:", f) },
	})
	if err != nil {
		return err
	}
	return ob.Relay(ctx, bus)
}

// processes are the relay processes of a test.
type processes struct {
	t   *testing.T
	r   *rig
	env string
	all []*exec.Cmd
}

func (p *processes) start() {
	self, err := os.Executable()
	require.NoError(p.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asRelay+"="+p.env)
	cmd.Stderr = os.Stderr
	require.NoError(p.t, testproc.Start(cmd))
	p.all = append(p.all, cmd)
}

// newProcesses starts two relay processes, which publish to the bus at url.
func newProcesses(t *testing.T, r *rig, url string, lease time.Duration) *processes {
	env, err := json.Marshal(job{r.db.Dialect, r.db.Driver, r.db.DSN, url, lease})
	require.NoError(t, err)
	p := &processes{t: t, r: r, env: string(env)}
	t.Cleanup(func() {
		for _, cmd := range p.all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	p.start()
	p.start()
	return p
}

// active waits until a relay process is active, and returns it.
func (p *processes) active() (found *exec.Cmd) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		s, err := p.r.Stats(p.t.Context())
		require.NoError(p.t, err)
		parts := strings.Split(s.Relay, "/")
		if len(parts) < 2 {
			return false
		}
		i := slices.IndexFunc(p.all, func(cmd *exec.Cmd) bool { return strconv.Itoa(cmd.Process.Pid) == parts[1] })
		if i < 0 {
			return false
		}
		found = p.all[i]
		return true
	}, 20*time.Second, time.Millisecond)
	return found
}

// kill kills the active process and starts another one. It returns how long it took until a
// process was active again.
func (p *processes) kill() time.Duration {
	p.t.Helper()
	cmd := p.active()
	time.Sleep(rand.N(30 * time.Millisecond)) // it is publishing
	require.NoError(p.t, cmd.Process.Kill())
	_ = cmd.Wait()
	p.all = slices.DeleteFunc(p.all, func(c *exec.Cmd) bool { return c == cmd })
	began := time.Now()
	p.start()
	p.active()
	return time.Since(began)
}

// freeze stops the active process until another one has taken over, and then lets it continue.
func (p *processes) freeze() {
	p.t.Helper()
	cmd := p.active()
	require.NoError(p.t, cmd.Process.Signal(testproc.Freeze))
	for p.isLocked() {
		require.NoError(p.t, cmd.Process.Signal(testproc.Thaw))
		time.Sleep(500 * time.Millisecond) // writers that wait for the lock ask for it every 100 ms
		cmd = p.active()
		require.NoError(p.t, cmd.Process.Signal(testproc.Freeze))
	}
	others := slices.DeleteFunc(slices.Clone(p.all), func(c *exec.Cmd) bool { return c == cmd })
	frozen := p.all
	p.all = others
	p.active()
	p.all = frozen
	require.NoError(p.t, cmd.Process.Signal(testproc.Thaw))
}

// isLocked reports whether no process can write. A process that is stopped in the middle of a
// transaction keeps the lock of SQLite, so that nobody could take over.
func (p *processes) isLocked() bool {
	if p.r.db.Dialect != "sqlite" {
		return false
	}
	db, err := sql.Open(p.r.db.Driver, strings.Replace(p.r.db.DSN, "busy_timeout(120000)", "busy_timeout(2000)", 1))
	require.NoError(p.t, err)
	defer db.Close()
	tx, err := db.BeginTx(p.t.Context(), nil)
	if err == nil {
		err = tx.Rollback()
	}
	return err != nil
}

// newShop returns a rig for a test with processes.
func newShop(t *testing.T, db *sqltest.Database) *rig {
	return newRig(t, db, outbox.Options{OnFailure: func(f outbox.Failure) { t.Error(f) }})
}
