package redisstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/internal/testing/testproc"
	"github.com/seed41896749/eventbus/redisstream"
)

// The test binary is a member in a process of its own if these are set.
const (
	roleVariable = "EVENTBUS_TEST_ROLE"
	addrVariable = "EVENTBUS_TEST_REDIS"
)

// A child is the test binary as a member in a process of its own. It reports each step in a
// line, and obeys lines from the test.
type child struct {
	cmd   *exec.Cmd
	lines chan string
	in    *os.File
}

func start(t *testing.T, role string, server *redistest.Server) *child {
	c := &child{cmd: exec.Command(os.Args[0]), lines: make(chan string, 100)}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+role, addrVariable+"="+server.Addr())
	c.cmd.Stderr = os.Stderr
	theirs, ours, err := os.Pipe()
	require.NoError(t, err)
	c.cmd.Stdin, c.in = theirs, ours
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	require.NoError(t, theirs.Close())
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	})
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(testproc.Thaw)
		_ = c.cmd.Process.Kill()
		reader.Wait()
		_ = c.cmd.Wait()
		_ = ours.Close()
	})
	return c
}

// expect waits for a line that begins with word and returns the rest of it.
func (c *child) expect(t *testing.T, word string) string {
	t.Helper()
	select {
	case line, ok := <-c.lines:
		rest, found := strings.CutPrefix(line, word)
		require.True(t, ok && found, "the child says %q, not %q", line, word)
		return strings.TrimSpace(rest)
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the child says nothing", "waiting for %q", word)
	}
	return ""
}

func (c *child) tell(t *testing.T) {
	_, err := c.in.WriteString("go on\n")
	require.NoError(t, err)
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	require.NoError(t, c.cmd.Process.Signal(s))
}

// play runs a child and returns its exit status.
func play(role string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(addrVariable)})
	told := bufio.NewScanner(os.Stdin)
	if err := roles[role](ctx, client, told); err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

var roles = map[string]func(ctx context.Context, client *redis.Client, told *bufio.Scanner) error{
	"hold":  hold,
	"delay": delay,
	"cycle": cycle,
	"work":  work,
	"read":  read,
}

// holder returns a member that holds three deliveries.
func holder(ctx context.Context, client *redis.Client) (member, []backend.Delivery, error) {
	b, err := redisstream.New(client, redisstream.Options{})
	if err != nil {
		return nil, nil, err
	}
	s, err := b.Attach(ctx, config())
	if err != nil {
		return nil, nil, err
	}
	var held []backend.Delivery
	for len(held) < 3 {
		ds, err := s.Receive(ctx, 3-len(held), 0)
		if err != nil {
			return nil, nil, err
		}
		held = append(held, ds...)
	}
	return s.(member), held, nil
}

// hold receives three deliveries. On command, it gives one back, extends one and acknowledges
// one.
func hold(ctx context.Context, client *redis.Client, told *bufio.Scanner) error {
	s, held, err := holder(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println("holding")
	told.Scan()
	for _, err := range []error{
		s.Delay(ctx, []backend.Delayed{{Delivery: held[0], For: time.Hour}}), s.Extend(ctx, backend.Lend(held[1:2])), s.Ack(ctx, backend.Lend(held[2:])),
	} {
		fmt.Println("result", err, errors.Is(err, backend.ErrLeaseLost))
	}
	told.Scan()
	return nil
}

// delay receives three deliveries, gives them back for two seconds and waits for its end.
func delay(ctx context.Context, client *redis.Client, told *bufio.Scanner) error {
	s, held, err := holder(ctx, client)
	if err != nil {
		return err
	}
	var later []backend.Delayed
	for i := range held {
		later = append(later, backend.Delayed{Delivery: held[i], For: time.Second})
	}
	if err := s.Delay(ctx, later); err != nil {
		return err
	}
	fmt.Println("delayed")
	told.Scan()
	return nil
}

// cycle opens and closes backends and checks that nothing is left.
func cycle(ctx context.Context, client *redis.Client, _ *bufio.Scanner) error {
	late := 0 // members whose leave the server may not have answered within a second
	for i := range 100 {
		b, err := redisstream.New(client, redisstream.Options{})
		if err != nil {
			return err
		}
		s, err := b.Attach(ctx, config())
		if err != nil {
			return err
		}
		other, err := b.Attach(ctx, config())
		if err != nil {
			return err
		}
		brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		_, err = s.Receive(brief, 1, 0)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err = b.Publish(ctx, batch(fmt.Sprint(i), 3)); err != nil {
			return err
		}
		closing := time.Now()
		if i%2 == 0 {
			err = errors.Join(s.Close(), other.Close())
		}
		if err := errors.Join(err, b.Close()); err != nil {
			return err
		}
		if time.Since(closing) >= time.Second {
			late += 2
		}
		if i%10 == 0 {
			clients, err := client.ClientList(ctx).Result()
			if err != nil {
				return err
			}
			fmt.Println("connections", strings.Count(clients, "\n"))
		}
	}
	if err := client.Close(); err != nil {
		return err
	}
	fmt.Println("clean", goleak.Find())
	fmt.Println("late", late)
	return nil
}

// L05: the messages of a killed process are redelivered to others when its lease expires,
// not before, and soon after.
func TestKilledProcessIsTakenOverFrom(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 3))
	began := time.Now()
	c := start(t, "hold", server)
	c.expect(t, "holding")
	held := time.Now()
	c.signal(t, syscall.SIGKILL)
	ds := receive(t, s, 3)
	require.GreaterOrEqual(t, time.Since(began), lease)
	require.Less(t, time.Since(held), lease+2*time.Second)
	for i := range ds {
		require.Equal(t, fmt.Sprintf("a-%d", i), ds[i].ID)
		require.Equal(t, 2, ds[i].Attempt)
	}
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	nothing(t, s, lease/4)
}

// L03: a process stood still for three leases. Its messages then belong to another member,
// and its late calls are refused, or change nothing.
func TestFrozenProcessIsTakenOverFromAndChangesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 3))
	c := start(t, "hold", server)
	c.expect(t, "holding")
	frozen := time.Now()
	c.signal(t, testproc.Freeze)
	ds := receive(t, s, 3)
	require.Less(t, time.Since(frozen), lease+2*time.Second)
	for time.Since(frozen) < 3*lease {
		pause(lease / 4)
		require.NoError(t, s.Extend(t.Context(), backend.Lend(ds)))
	}
	c.signal(t, testproc.Thaw)
	c.tell(t)
	require.Contains(t, c.expect(t, "result"), "true", "a late Delay is refused")
	require.Contains(t, c.expect(t, "result"), "true", "a late Extend is refused")
	c.expect(t, "result <nil>") // a late Ack is not refused
	require.NoError(t, s.Extend(t.Context(), backend.Lend(ds[:2])), "they are the new holder's")
	require.ErrorIs(t, s.Extend(t.Context(), backend.Lend(ds[2:])), backend.ErrLeaseLost, "settled is settled")
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	stats, err := b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Zero(t, stats.Lag+stats.InFlight+stats.Delayed, "everything is settled")
	nothing(t, s, lease/2)
	c.tell(t)
}

// T06: messages that a process has delayed are redelivered on time, though it is killed.
func TestDelaysOfKilledProcessComeBackOnTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 3))
	began := time.Now()
	c := start(t, "delay", server)
	c.expect(t, "delayed")
	delayed := time.Now()
	c.signal(t, syscall.SIGKILL)
	ds := receive(t, s, 3)
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	require.Less(t, time.Since(delayed), 3*time.Second)
	require.Equal(t, 2, ds[0].Attempt)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
}

// S05: cycles of opening, attaching and closing leave neither connections nor goroutines.
// They run in a process of their own, where nothing else has any.
func TestClosedBackendLeavesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := start(t, "cycle", server)
	for range 10 {
		require.Contains(t, []string{"1", "2"}, c.expect(t, "connections"), "the lent client's and no other")
	}
	require.Equal(t, "<nil>", c.expect(t, "clean"))
	consumers, err := server.Client(t).XInfoConsumers(t.Context(), stream, workers).Result()
	require.NoError(t, err)
	stayed := 0
	for _, consumer := range consumers {
		if consumer.Pending == 0 {
			stayed++
		}
	}
	late, err := strconv.Atoi(c.expect(t, "late"))
	require.NoError(t, err)
	require.LessOrEqual(t, stayed, late, "who holds nothing has left")
}

// L07: 500 members join and end, many without leaving. They leave few traces, and nothing
// is lost.
func TestMembersThatComeAndGoLeaveFewTraces(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lent := dial(t, server.Addr())
	b := open(t, lent, redisstream.Options{})
	c := config()
	c.Lease = 100 * time.Millisecond
	attach(t, b, c)
	publish(t, b, batch("a", 1000))
	seen := map[string]bool{}
	var mu sync.Mutex
	settle := func(s backend.Source, ds []backend.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		for i := range ds {
			seen[ds[i].ID] = true
		}
		if err := s.Ack(t.Context(), backend.Lend(ds)); err != nil {
			t.Errorf("ack: %v", err)
		}
	}
	var churn sync.WaitGroup
	for worker := range 4 {
		churn.Go(func() {
			for n := range 125 {
				s, err := b.Attach(t.Context(), c)
				if err != nil {
					t.Errorf("attach: %v", err)
					continue
				}
				ds, err := s.Receive(within(t, 20*time.Millisecond), 5, 0)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("receive: %v", err)
				}
				if (n+worker)%3 > 0 {
					settle(s, ds)
				}
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
	}
	churn.Wait()
	last := attach(t, b, c)
	for len(seen) < 1000 {
		settle(last, receive(t, last, 1))
	}
	admin := server.Client(t)
	require.Eventually(t, func() bool {
		_, err := b.Maintain(t.Context(), topic, workers)
		require.NoError(t, err)
		_, err = last.Receive(within(t, 50*time.Millisecond), 100, 0)
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		consumers, err := admin.XInfoConsumers(t.Context(), stream, workers).Result()
		require.NoError(t, err)
		return len(consumers) <= 3
	}, 20*time.Second, 200*time.Millisecond, "members that have gone are forgotten")
}
