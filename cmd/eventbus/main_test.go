package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/demo"
)

// command runs a command line and returns its exit code and output.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), drivers(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "events.ndjson")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestDemo(t *testing.T) {
	code, stdout, stderr := command(t, "demo")
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "2000 events from the shop in ")
	require.Contains(t, stdout, "\nlost 0, out of order 0, duplicated 0\n")
	for _, group := range []string{"billing", "shipping", "audit"} {
		require.Contains(t, stdout, "\n"+group+" ")
	}
}

func TestDemoAsJSON(t *testing.T) {
	name := file(t, strings.Repeat(`{"key":"k","data":{"order":"o"}}`+"\n", 500))
	code, stdout, stderr := command(t, "demo", "--json", "--input", name)
	require.Zero(t, code, stderr)
	var r demo.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r), "nothing else on stdout")
	require.Equal(t, name, r.Input)
	require.Equal(t, 500, r.Published)
	require.Len(t, r.Groups, 3)
}

func TestDemoReadsStandardInput(t *testing.T) {
	root := newRoot(drivers())
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetIn(strings.NewReader(`{"id":"1"}`))
	root.SetArgs([]string{"demo", "--input", "-"})
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "1 event from standard input")
}

func TestErrorsAreOneLine(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown command", []string{"dmo"}, `eventbus: unknown command "dmo" for "eventbus"`},
		{"unknown command below one", []string{"dlq", "purg", "orders.dlq"}, `eventbus: unknown command "purg" for "eventbus dlq"`},
		{"unknown flag", []string{"demo", "--inptu", "x"}, "eventbus: unknown flag: --inptu"},
		{"argument", []string{"version", "now"}, `eventbus: unknown command "now" for "eventbus version"`},
		{"no file", []string{"demo", "--input", "/nowhere/at-all"}, "eventbus: demo: open /nowhere/at-all: no such file"},
		{"bad line", []string{"demo", "--input", file(t, "{}\n{\"kye\":1}\n")}, `events.ndjson:2: not an event as JSON: unknown field "kye"`},
		{"unknown scheme", []string{"demo", "--url", "kafka://u:secret@h"}, `has the scheme "kafka", which no driver given to Open serves`},
		{"URL as a flag", []string{"ping", "--connect-timeout=redis://u:secret@h"}, `invalid argument "URL"`},
		{"URL of other letters", []string{"ping", "--connect-timeout", "redis://u:\"ß\tsecret@h"}, `time: invalid duration "URL"`},
		{"pub to memory", []string{"pub", "orders", "--url", "mem:", "--data", "x"}, "pub: mem: would forget the events"},
		{"typing error", []string{"demo", "--url", "meme:"}, "did you mean mem:?"},
		{"unknown parameter", []string{"demo", "--url", "mem:?max_mesages=3"}, `did you mean "max_messages"?`},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := command(t, row.args...)
			require.Equal(t, 1, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, row.want)
			require.True(t, strings.HasPrefix(stderr, "eventbus: "), stderr)
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
			require.NotContains(t, stderr, "secret")
		})
	}
}

// The demo keeps no events: 96 MiB of input pass through a much smaller heap.
func TestDemoDoesNotHoldItsInput(t *testing.T) {
	const events, size = 24 << 10, 4 << 10
	from, to := io.Pipe()
	go func() {
		pad := strings.Repeat("x", size)
		for i := range events {
			fmt.Fprintf(to, `{"key":"k-%d","headers":{"pad":"%s"},"data":{}}`+"\n", i%500, pad)
		}
		to.Close()
	}()
	var most uint64
	stop := sampleHeap(&most)
	root := newRoot(drivers())
	root.SetOut(io.Discard)
	root.SetIn(from)
	root.SetArgs([]string{"demo", "--input", "-"})
	err := root.ExecuteContext(t.Context())
	stop()
	require.NoError(t, err)
	t.Logf("at most %d KiB live", most>>10)
	require.Less(t, most, uint64(events*size/2), "bytes live at any time")
}

// sampleHeap records the largest live heap after a collection, until stop is called.
func sampleHeap(most *uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			runtime.GC()
			live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
			metrics.Read(live)
			*most = max(*most, live[0].Value.Uint64())
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// The demo deletes its topics if the account is right, even if it cannot be printed.
func TestDemoLeavesNoTopicsBehindAClosedPipe(t *testing.T) {
	b := newBench(t)
	from, to := io.Pipe()
	require.NoError(t, from.Close())
	var errs bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []backend.Driver{sharedDriver{b.b}}, []string{"demo", "--url", "test:"}, strings.NewReader(""), to, &errs))
	require.Equal(t, "eventbus: demo: io: read/write on closed pipe\n", errs.String())
	require.Empty(t, b.ok("", "topics").stdout)
}

func TestDemoEndsWithASignal(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	from, to := io.Pipe()
	go func() {
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(to, `{"key":"k-%d"}`+"\n", i%100); err != nil {
				return
			}
			if i == 5000 {
				cancel(fmt.Errorf("interrupt signal received"))
			}
		}
	}()
	defer from.Close()
	root := newRoot(drivers())
	root.SetOut(io.Discard)
	root.SetIn(from)
	root.SetArgs([]string{"demo", "--input", "-"})
	err := root.ExecuteContext(ctx)
	require.ErrorContains(t, err, "demo: ended after ")
	require.ErrorContains(t, err, "interrupt signal received")
	require.NotContains(t, err.Error(), "drain")
}

func TestVersion(t *testing.T) {
	code, stdout, _ := command(t, "version")
	require.Zero(t, code)
	require.True(t, strings.HasPrefix(stdout, "eventbus "), stdout)
	require.Contains(t, stdout, runtime.Version())

	code, stdout, _ = command(t, "version", "--json")
	require.Zero(t, code)
	var v version
	require.NoError(t, json.Unmarshal([]byte(stdout), &v))
	require.Equal(t, runtime.Version(), v.Go)
}

func TestVersionOfACheckout(t *testing.T) {
	v := versionOf(&debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.1.0"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	})
	require.Equal(t, "eventbus v0.1.0 abc with changes go1.26.0 "+runtime.GOOS+"/"+runtime.GOARCH, v.String())
}

func TestReadmeShowsTheAccount(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	code, stdout, stderr := command(t, "demo")
	require.Zero(t, code, stderr)
	_, account, _ := strings.Cut(stdout, "\n\n")
	require.Contains(t, string(readme), "```text\n"+account+"```")
}
