//go:build unix

package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

const isProgram = "EVENTBUS_TEST_IS_SERVICE"

// TestMain runs the test binary as a program with a service, for tests with processes.
func TestMain(m *testing.M) {
	if kind := os.Getenv(isProgram); kind != "" {
		program(kind)
	}
	os.Exit(m.Run())
}

// program is a service whose events behave as kind says. It prints "begun" when a handler runs.
func program(kind string) {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
	if err != nil {
		panic(err)
	}
	s, err := New(bus, Options{})
	if err != nil {
		panic(err)
	}
	err = s.Register(ctx, "g", Group{Topic: "t", Handler: func(ctx context.Context, d *eventbus.Delivery) error {
		fmt.Fprintln(os.Stdout, "begun")
		switch kind {
		case "panics":
			panic("boom")
		case "fails":
			return errors.New("broken")
		case "stuck":
			<-make(chan bool)
		case "slow":
			<-time.After(300 * time.Millisecond)
		case "waits":
			<-ctx.Done()
			return context.Cause(ctx)
		case "dies":
			go bus.Backend().Close()
		}
		return nil
	}})
	if err != nil {
		panic(err)
	}
	if err := bus.Publish(ctx, "t", &eventbus.Event{}); err != nil {
		panic(err)
	}
	drain := 500 * time.Millisecond
	if kind == "stuck" {
		drain = time.Hour // only a second signal ends it
	}
	outcome := s.Run(ctx, drain)
	fmt.Fprintln(os.Stdout, outcome)
	os.Exit(outcome.ExitCode())
}

// The exit codes of a program that gets real signals.
func TestExitCodesOfAProcess(t *testing.T) {
	for _, row := range []struct {
		kind    string
		signals []syscall.Signal // a second apart
		code    int
		says    string
	}{
		{"succeeds", []syscall.Signal{syscall.SIGTERM}, 0, "failures 0"},
		{"fails", []syscall.Signal{syscall.SIGINT}, 0, "failures 1 (panics 0"},
		{"slow", []syscall.Signal{syscall.SIGTERM}, 0, "left 0"},
		{"dies", nil, 1, "closed"},
		{"panics", []syscall.Signal{syscall.SIGTERM}, 2, "panics 1"},
		{"waits", []syscall.Signal{syscall.SIGTERM}, 3, "left 0, the drain timed out"},
		{"stuck", []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, 3, "left 1, the drain timed out"},
	} {
		t.Run(row.kind, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), isProgram+"="+row.kind)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines := bufio.NewScanner(out)
			require.True(t, lines.Scan())
			require.Equal(t, "begun", lines.Text())
			for i, signal := range row.signals {
				if i > 0 {
					time.Sleep(1100 * time.Millisecond) // until another signal counts as the second one
				}
				require.NoError(t, cmd.Process.Signal(signal))
			}
			var said []string
			for lines.Scan() {
				said = append(said, lines.Text())
			}
			err = cmd.Wait()
			var exit *exec.ExitError
			if row.code != 0 {
				require.ErrorAs(t, err, &exit, said)
			} else {
				require.NoError(t, err, said)
			}
			require.Equal(t, row.code, cmd.ProcessState.ExitCode(), said)
			require.Contains(t, strings.Join(said, "\n"), row.says)
		})
	}
}
